package signin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"weir/internal/weir"
)

// Secret is a string that is printed, logged and encoded as "(secret)".
type Secret string

func (Secret) String() string { return "(secret)" }

// GoString implements fmt.GoStringer, for %#v.
func (Secret) GoString() string { return "(secret)" }

// MarshalText implements encoding.TextMarshaler, for logs and JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Settings has a field for each way to sign in. It has no field for the sign-in by a chain of
// requests (delivery.signIn.steps). NewSource requires that exactly one field is set.
type Settings struct {
	Basic  *Basic  `yaml:"basic"`
	Bearer Secret  `yaml:"bearer"`
	Header *Header `yaml:"header"`
	OAuth2 *OAuth2 `yaml:"oauth2"`
	JWT    *JWT    `yaml:"jwt"`
	Azure  *Azure  `yaml:"azure"`
}

// Basic signs in with a user and a password.
type Basic struct {
	User     string `yaml:"user"`
	Password Secret `yaml:"password"`
}

// Header signs in with a key in a header.
type Header struct {
	Name  string `yaml:"name"`
	Value Secret `yaml:"value"`
}

// OAuth2 gets tokens with the OAuth 2.0 grant client_credentials.
type OAuth2 struct {
	TokenURL     string            `yaml:"tokenUrl"`
	ClientID     string            `yaml:"clientId"`
	ClientSecret Secret            `yaml:"clientSecret"`
	Scopes       []string          `yaml:"scopes"`
	Params       map[string]string `yaml:"params"` // further parameters, such as audience
	// where the secret is sent: header | params; empty = try both
	Style string `yaml:"style"`
}

// JWT signs in with tokens that Weir creates itself.
type JWT struct {
	Alg string `yaml:"alg"` // HS256 | RS256
	Key Secret `yaml:"key"`
	// text | hex | base64 | pem; empty = pem for RS256, text for HS256
	KeyIs  string            `yaml:"keyIs"`
	KeyID  string            `yaml:"kid"`
	Aud    string            `yaml:"aud"`
	Iss    string            `yaml:"iss"`
	Sub    string            `yaml:"sub"`
	Claims map[string]string `yaml:"claims"`
	TTL    string            `yaml:"ttl"`    // lifetime of a token, a Go duration; empty = 5m
	Scheme string            `yaml:"scheme"` // scheme in the header Authorization; empty = Bearer
}

// Azure gets tokens for the process's Azure identity.
type Azure struct {
	Scope string `yaml:"scope"`
}

// AzureToken gets a token for a scope, with the process's Azure identity.
type AzureToken func(ctx context.Context, scope string) (token string,
	expiresAt time.Time, err error)

// IsSet reports whether at least one way to sign in is set.
func (s *Settings) IsSet() bool { return len(s.listWays()) > 0 }

// listWays returns the names of the ways that are set.
func (s *Settings) listWays() []string {
	var ways []string
	for _, way := range []struct {
		name  string
		isSet bool
	}{{"basic", s.Basic != nil}, {"bearer", s.Bearer != ""}, {"header", s.Header != nil},
		{"oauth2", s.OAuth2 != nil},
		{"jwt", s.JWT != nil}, {"azure", s.Azure != nil}} {
		if way.isSet {
			ways = append(ways, way.name)
		}
	}

	return ways
}

// Tools has the dependencies of the sources that NewSource creates.
type Tools struct {
	Transport http.RoundTripper // for oauth2: sends requests to token endpoints
	Azure     AzureToken        // for azure
	Now       func() time.Time  // for jwt
}

// NewSource returns the Source for the field that is set. It returns an error if no field or more
// than one field is set, or if the field has a wrong value.
func (s *Settings) NewSource(tools Tools) (Source, error) {
	ways := s.listWays()
	if len(ways) != 1 {
		return nil, weir.NewSettingProblem("delivery.signIn",
			"has %d ways (%s) and must have one: basic, bearer, header, oauth2, jwt, "+
				"azure or steps",
			len(ways),
			strings.Join(ways, ", "),
		)
	}

	switch {
	case s.Basic != nil:
		return s.Basic.newSource()
	case s.Bearer != "":
		return newHeaderSource("Authorization", "Bearer "+string(s.Bearer))
	case s.Header != nil:
		return newHeaderSource(s.Header.Name, string(s.Header.Value))
	case s.OAuth2 != nil:
		return s.OAuth2.newSource(tools)
	case s.JWT != nil:
		return s.JWT.newSource(tools)
	}

	if s.Azure.Scope == "" || tools.Azure == nil {
		return nil, weir.NewSettingProblem("delivery.signIn.azure",
			"scope is missing, such as api://my-cms/.default")
	}

	return &azureSource{s.Azure.Scope, tools.Azure}, nil
}

func (b *Basic) newSource() (Source, error) {
	switch {
	case b.User == "" || b.Password == "":
		return nil, weir.NewSettingProblem("delivery.signIn.basic",
			"user and password are both needed")
	case strings.Contains(b.User, ":"):
		return nil, weir.NewSettingProblem("delivery.signIn.basic",
			"a user's name cannot have a colon")
	}

	credential := base64.StdEncoding.EncodeToString([]byte(b.User + ":" + string(b.Password)))
	return newHeaderSource("Authorization", "Basic "+credential)
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// IsHeaderName reports whether a text can be the name of a header.
func IsHeaderName(text string) bool { return headerName.MatchString(text) }

func newHeaderSource(name, value string) (Source, error) {
	switch {
	case !IsHeaderName(name):
		return nil, weir.NewSettingProblem("delivery.signIn.header",
			"%q is not the name of a header; write one such as X-Api-Key",
			name,
		)

	case value == "" || !isHeaderValue(value):
		return nil, weir.NewSettingProblem("delivery.signIn",
			"the value of the header is empty or has a control character")
	}

	return Fixed{Headers: http.Header{http.CanonicalHeaderKey(name): {value}}}, nil
}

func (o *OAuth2) newSource(tools Tools) (Source, error) {
	style, known := map[string]oauth2.AuthStyle{"": oauth2.AuthStyleAutoDetect,
		"header": oauth2.AuthStyleInHeader, "params": oauth2.AuthStyleInParams}[o.Style]
	u, err := url.Parse(o.TokenURL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, weir.NewSettingProblem("delivery.signIn.oauth2",
			"tokenUrl is not an absolute address, such as "+
				"https://login.example/token")

	case o.ClientID == "" || o.ClientSecret == "":
		return nil, weir.NewSettingProblem("delivery.signIn.oauth2",
			"clientId and clientSecret are both needed")
	case !known:
		return nil, weir.NewSettingProblem("delivery.signIn.oauth2",
			"style is %q and must be header or params, or left out",
			o.Style)
	}

	params := url.Values{}
	for name, value := range o.Params {
		params.Set(name, value)
	}

	client := &http.Client{Transport: tools.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}

	return &oauth2Source{clientcredentials.Config{ClientID: o.ClientID,
			ClientSecret: string(o.ClientSecret),
			TokenURL:     o.TokenURL, Scopes: o.Scopes, EndpointParams: params, AuthStyle: style},
			client},
		nil
}

type oauth2Source struct {
	config clientcredentials.Config
	client *http.Client
}

// Fetch implements Source. If the token endpoint refuses, the error has only the status and the
// OAuth error code of the answer. Other parts of the answer could repeat the secret.
func (s *oauth2Source) Fetch(ctx context.Context) (Credential, error) {
	token, err := s.config.Token(context.WithValue(ctx, oauth2.HTTPClient, s.client))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.Response != nil:
		return Credential{}, fmt.Errorf("the token endpoint answered %d %s",
			refused.Response.StatusCode, keepCode(refused.ErrorCode))
	case err != nil:
		return Credential{}, fmt.Errorf("no token: %s", withoutAddress(err))
	}

	return Credential{Headers: http.Header{"Authorization": {token.Type() + " " + token.AccessToken}},
		ExpiresAt: token.Expiry}, nil
}

var errorCode = regexp.MustCompile(`^[a-z_]{1,40}$`)

// keepCode returns code if code has the form of an OAuth error code, such as invalid_client.
// Otherwise it returns "".
func keepCode(code string) string {
	if errorCode.MatchString(code) {
		return code
	}
	return ""
}

// withoutAddress returns the text of an error without the request's address and the endpoint's
// answer, because both can have secrets.
func withoutAddress(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}

	text := err.Error()
	if strings.HasPrefix(text, "oauth2: cannot parse") { // such an error quotes the answer
		return "the token endpoint's answer cannot be read"
	}

	return text
}

func (j *JWT) newSource(tools Tools) (Source, error) {
	method := map[string]jwt.SigningMethod{"HS256": jwt.SigningMethodHS256, "RS256": jwt.SigningMethodRS256}[j.Alg]
	if method == nil {
		return nil, weir.NewSettingProblem("delivery.signIn.jwt",
			"alg is %q and must be HS256 or RS256", j.Alg)
	}

	ttl := 5 * time.Minute
	if j.TTL != "" {
		var err error
		if ttl, err = time.ParseDuration(j.TTL); err != nil || ttl <= 0 {
			return nil, weir.NewSettingProblem("delivery.signIn.jwt",
				"ttl is %q and must be a duration such as 5m", j.TTL)
		}
	}

	key, err := j.readKey()
	if err != nil {
		return nil, weir.NewSettingProblem("delivery.signIn.jwt", "%v", err)
	}

	return &jwtSource{j, method, key, ttl, tools.Now}, nil
}

// readKey returns the parsed key. Its errors never quote the key.
func (j *JWT) readKey() (any, error) {
	if j.Key == "" {
		return nil, errors.New("key is missing")
	}

	if j.Alg == "RS256" {
		if j.KeyIs != "" && j.KeyIs != "pem" {
			return nil, errors.New("the key of RS256 is a private key in PEM; leave keyIs out")
		}

		key, err := jwt.ParseRSAPrivateKeyFromPEM(
			[]byte(strings.ReplaceAll(string(j.Key), `\n`, "\n")))
		if err != nil {
			return nil, errors.New("key is not a private RSA key in PEM")
		}

		return key, nil
	}

	switch j.KeyIs {
	case "", "text":
		return []byte(j.Key), nil
	case "hex":
		key, err := hex.DecodeString(string(j.Key))
		if err != nil {
			return nil, errors.New("key is not hexadecimal, but keyIs is hex")
		}
		return key, nil

	case "base64":
		key, err := base64.StdEncoding.DecodeString(string(j.Key))
		if err != nil {
			return nil, errors.New("key is not base64, but keyIs is base64")
		}
		return key, nil
	}

	return nil, fmt.Errorf("keyIs is %q and must be text, hex or base64", j.KeyIs)
}

type jwtSource struct {
	settings *JWT
	method   jwt.SigningMethod
	key      any
	ttl      time.Duration
	now      func() time.Time
}

// Fetch implements Source.
func (s *jwtSource) Fetch(context.Context) (Credential, error) {
	now := s.now()
	claims := jwt.MapClaims{"iat": now.Unix(), "exp": now.Add(s.ttl).Unix()}
	for name, value := range s.settings.Claims {
		claims[name] = value
	}

	for name, value := range map[string]string{"aud": s.settings.Aud, "iss": s.settings.Iss,
		"sub": s.settings.Sub} {
		if value != "" {
			claims[name] = value
		}
	}

	token := jwt.NewWithClaims(s.method, claims)
	if s.settings.KeyID != "" {
		token.Header["kid"] = s.settings.KeyID
	}

	signed, err := token.SignedString(s.key)
	if err != nil {
		return Credential{}, errors.New("the token cannot be signed")
	}

	scheme := s.settings.Scheme
	if scheme == "" {
		scheme = "Bearer"
	}

	return Credential{Headers: http.Header{"Authorization": {scheme + " " + signed}},
		ExpiresAt: now.Add(s.ttl)}, nil
}

type azureSource struct {
	scope string
	token AzureToken
}

// Fetch implements Source.
func (s *azureSource) Fetch(ctx context.Context) (Credential, error) {
	token, expiresAt, err := s.token(ctx, s.scope)
	if err != nil {
		return Credential{}, fmt.Errorf("no token of the identity for %s", s.scope)
	}
	return Credential{Headers: http.Header{"Authorization": {"Bearer " + token}},
		ExpiresAt: expiresAt}, nil
}

// TLS has a client certificate with its private key, and additional certificate authorities. Each
// field is a PEM text, the name of a file with a PEM text, or empty.
type TLS struct {
	Cert Secret `yaml:"cert"`
	Key  Secret `yaml:"key"`
	CA   Secret `yaml:"ca"`
}

// NewConfig returns a TLS configuration. If no field is set, NewConfig returns nil, which means the
// default configuration. An error of NewConfig names only the field, such as cert; the caller adds
// the name of the setting that has the field.
func (t TLS) NewConfig() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}

	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.Cert != "" || t.Key != "" {
		cert, err := readPEM("cert", t.Cert)
		if err != nil {
			return nil, err
		}

		key, err := readPEM("key", t.Key)
		if err != nil {
			return nil, err
		}

		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, errors.New("cert and key are not a certificate and its private key in PEM")
		}

		config.Certificates = []tls.Certificate{pair}
	}

	if t.CA != "" {
		ca, err := readPEM("ca", t.CA)
		if err != nil {
			return nil, err
		}

		config.RootCAs, err = x509.SystemCertPool()
		if err != nil {
			config.RootCAs = x509.NewCertPool()
		}

		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("ca has no certificate in PEM")
		}
	}

	return config, nil
}

// readPEM returns the PEM text of a field of TLS; name is the field's name. The errors never quote
// the value.
func readPEM(name string, value Secret) ([]byte, error) {
	text := strings.ReplaceAll(string(value), `\n`, "\n")
	if strings.HasPrefix(strings.TrimSpace(text), "-----BEGIN ") {
		return []byte(text), nil
	}
	if text == "" {
		return nil, fmt.Errorf("%s is missing; cert and key belong together", name)
	}

	content, err := os.ReadFile(text)
	if err != nil {
		return nil, fmt.Errorf("%s is neither PEM nor the name of a file that can be read", name)
	}

	return content, nil
}
