package conceal

import (
	"encoding/base64"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// AddressSecrets returns the secrets in the user info of an address: the password, and the value
// that net/http sends in the header Authorization. Without a password, the user name is a secret,
// because then it is usually a token. If u is nil or has no user info, there are no secrets.
func AddressSecrets(u *url.URL) []string {
	if u == nil || u.User == nil {
		return nil
	}

	password, isSet := u.User.Password()
	secret := password
	if !isSet || password == "" {
		secret = u.User.Username()
	}

	credential := u.User.Username() + ":" + password

	return []string{secret, base64.StdEncoding.EncodeToString([]byte(credential))}
}

// HeaderSecrets returns the secrets in a header's value: the value, the text after a scheme such as
// Bearer, the password of a Basic credential, and the values of cookies.
func HeaderSecrets(name, value string) []string {
	scheme, credential, _ := strings.Cut(value, " ")
	secrets := []string{value, strings.TrimSpace(credential)}
	if strings.EqualFold(scheme, "Basic") {
		decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(credential))
		if user, password, found := strings.Cut(string(decoded), ":"); err == nil && found {
			if password == "" {
				password = user
			}
			secrets = append(secrets, password)
		}
	}

	switch http.CanonicalHeaderKey(name) {
	case "Set-Cookie":
		value, _, _ = strings.Cut(value, ";")
		fallthrough
	case "Cookie":
		for pair := range strings.SplitSeq(value, ";") {
			_, cookie, _ := strings.Cut(pair, "=")
			secrets = append(secrets, strings.Trim(strings.TrimSpace(cookie), `"`))
		}
	}

	return secrets
}

// RequestSecrets returns the secrets in a request's address and in its credential headers.
func RequestSecrets(req *http.Request) []string {
	secrets := append(AddressSecrets(req.URL), CredentialSecrets(req.Header)...)
	return append(secrets, formSecrets(req.URL.Query())...)
}

// credentialField matches the names of fields that usually have a credential, such as csrftoken and
// client_secret.
var credentialField = regexp.MustCompile(
	`(?i)(token|secret|password|passwd|pwd|api[-_]?key|credential|csrf|nonce)$`)

func formSecrets(form url.Values) (secrets []string) {
	for name, values := range form {
		if credentialField.MatchString(name) {
			secrets = append(secrets, values...)
		}
	}
	return secrets
}

// ContentSecrets returns the values of those fields of a form or of JSON that usually have a
// credential. The content of another type has none.
func ContentSecrets(contentType string, content []byte) []string {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch {
	case kind == "application/x-www-form-urlencoded":
		form, _ := url.ParseQuery(string(content))
		return formSecrets(form)
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		var value any
		if json.Unmarshal(content, &value) == nil {
			return ValueSecrets(value)
		}
	}

	return nil
}

// ValueSecrets returns the values of those fields of JSON that usually have a credential.
func ValueSecrets(value any) (secrets []string) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			secrets = append(secrets, ValueSecrets(item)...)
		}

	case map[string]any:
		for name, item := range v {
			if text, isText := item.(string); isText && credentialField.MatchString(name) {
				secrets = append(secrets, text)
			}
			secrets = append(secrets, ValueSecrets(item)...)
		}
	}

	return secrets
}

// CredentialSecrets returns the secrets in the credential headers of a request or an answer.
func CredentialSecrets(header http.Header) (secrets []string) {
	for name, values := range header {
		if IsCredentialHeader(name) {
			for _, value := range values {
				secrets = append(secrets, HeaderSecrets(name, value)...)
			}
		}
	}

	return secrets
}

// credentialHeader matches the names of headers that usually have a credential, such as
// Authorization, Proxy-Authorization, Set-Cookie, X-CSRF-Token and X-Api-Key. It does not match
// Idempotency-Key and Weir-Key.
var credentialHeader = regexp.MustCompile(
	`(?i)authoriz|cookie|token|secret|passw|credential|csrf|xsrf|session|` +
		`signature|(^|-)auth(-|$)|(api|access|account|app|auth|client|functions?|master|private|shared|subscription)-?key`)

// IsCredentialHeader reports whether the value of a header is hidden because of the header's name.
func IsCredentialHeader(name string) bool { return credentialHeader.MatchString(name) }

var (
	// userInfo matches the user info of an address in a text.
	userInfo = regexp.MustCompile(`(//)[^/\\\s"'<>?#]*@`)
	// codeParam matches the parameter code of an address in a text. The Functions host takes a
	// function key from this parameter, in upper or lower case. Each letter can be percent-encoded.
	codeParam = regexp.MustCompile(
		`(?i)([?&;](?:c|%(?:25)*[46]3)(?:o|%(?:25)*[46]f)(?:d|%(?:25)*[46]4)` +
			`(?:e|%(?:25)*[46]5)(?:=|%(?:25)*3d))[^&;#\s"'<>\\]+`)
)

// Hidden stands in a text in place of a secret.
const Hidden = "…"

// HideAddressParts returns a text with … in place of the user info and of the parameter code of
// each address in it.
func HideAddressParts(text string) string {
	if strings.Contains(text, "@") {
		text = userInfo.ReplaceAllString(text, "${1}"+Hidden+"@")
	}

	if strings.ContainsAny(text, "?&;") {
		text = codeParam.ReplaceAllString(text, "${1}"+Hidden)
	}
	return text
}
