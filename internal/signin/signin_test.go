package signin_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/internal/signin"
)

// roundTrip answers requests without a network.
type roundTrip func(*http.Request) (int, string)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) {
	status, body := f(req)
	return &http.Response{StatusCode: status,
		Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
		Body: io.NopCloser(strings.NewReader(body))}, nil
}

// counted is a source of numbered credentials.
type counted struct {
	n     atomic.Int32  // number of calls of Fetch
	life  time.Duration // lifetime of a credential
	takes time.Duration // duration of Fetch
	fails atomic.Bool   // true = Fetch fails
}

func (c *counted) Fetch(ctx context.Context) (signin.Credential, error) {
	n := c.n.Add(1)
	select {
	case <-time.After(c.takes):
	case <-ctx.Done():
	}

	if c.fails.Load() {
		return signin.Credential{}, errors.New("the token endpoint answered 500")
	}

	return signin.Credential{Headers: http.Header{"Authorization": {fmt.Sprintf("Bearer token-%d", n)}},
		Cookies:   []*http.Cookie{{Name: "s", Value: "cookie-value"}},
		ExpiresAt: time.Now().Add(c.life)}, nil
}

func newRequest(t *testing.T, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(
		t.Context(),
		http.MethodPost,
		"http://cms.example/a",
		strings.NewReader(body),
	)
	if err != nil {
		t.Fatal(err)
	}

	return req
}

// sendThrough posts a body through rt, and returns the status of the answer.
func sendThrough(t *testing.T, rt http.RoundTripper, body string) (int, error) {
	t.Helper()
	resp, err := rt.RoundTrip(newRequest(t, body))
	if err != nil {
		return 0, err
	}

	resp.Body.Close()
	return resp.StatusCode, nil
}

// TestTransport_OneTokenForAll sends 10,000 requests, ten at a time, with tokens that are valid for
// 2 s. The Keeper signs in once every 1.5 s, and no request waits for a renewal.
func TestTransport_OneTokenForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &counted{life: 2 * time.Second, takes: 100 * time.Millisecond}
		var used sync.Map
		rt := signin.NewTransport(roundTrip(func(req *http.Request) (int, string) {
			used.Store(req.Header.Get("Authorization"), true)
			return 200, ""
		}), signin.NewKeeper(source, time.Now))

		began := time.Now()

		for range 10 {
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					for range 100 {
						if status, err := sendThrough(t, rt, "x"); status != 200 || err != nil {
							t.Errorf("got %d, %v, want 200 and no error", status, err)
						}
						time.Sleep(15 * time.Millisecond)
					}
				})
			}

			all.Wait()
		}

		took := time.Since(began)
		if want := int32(took/(1500*time.Millisecond)) + 1; source.n.Load() > want ||
			source.n.Load() < want-2 {
			t.Errorf("got %d sign-ins in %s, want about %d", source.n.Load(), took, want)
		}

		if over := took - (10*100*15*time.Millisecond + 100*time.Millisecond); over > 0 {
			t.Errorf("requests waited %s for renewals, want no wait after the first sign-in", over)
		}
	})
}

func TestTransport_RenewsOnceAfter401(t *testing.T) {
	t.Parallel()
	source := &counted{life: time.Hour}
	var bodies []string
	refuse := 1
	keeper := signin.NewKeeper(source, time.Now)
	rt := signin.NewTransport(roundTrip(func(req *http.Request) (int, string) {
		body, _ := io.ReadAll(req.Body)
		bodies = append(bodies,
			req.Header.Get("Authorization")+" "+req.Header.Get("Cookie")+" "+string(body))
		if len(bodies) <= refuse {
			return 401, "expired"
		}
		return 200, ""
	}), keeper)

	status, err := sendThrough(t, rt, "the body")
	want := "Bearer token-1 s=cookie-value the body,Bearer token-2 s=cookie-value the body"
	if got := strings.Join(bodies, ","); status != 200 || err != nil || got != want {
		t.Errorf("got %d, %v with %q, want 200 with %q", status, err, got, want)
	}

	bodies, refuse = nil, 9
	if status, err := sendThrough(t, rt, "x"); status != 401 || err != nil || len(bodies) != 2 {
		t.Errorf("got %d, %v after %d requests, want 401 after 2", status, err, len(bodies))
	}

	if secrets := strings.Join(keeper.Secrets(), " "); !strings.Contains(secrets, "token-3") ||
		!strings.Contains(secrets, "cookie-value") {
		t.Errorf("got the secrets %q, want token-3 and cookie-value among them", secrets)
	}
}

// A 403 can mean that the session has ended. Then one sign-in and one repeated request follow, but
// no second sign-in within five minutes, because the user may lack a right.
func TestTransport_RenewsRarelyAfter403(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &counted{life: time.Hour, takes: time.Second}
		var requests, newest atomic.Int32
		rt := signin.NewTransport(roundTrip(func(req *http.Request) (int, string) {
			requests.Add(1)
			if req.Header.Get("Authorization") == fmt.Sprintf("Bearer token-%d", newest.Load()) {
				return 200, ""
			}
			return 403, "no"
		}), signin.NewKeeper(source, time.Now))

		check := func(name string, status int, wantRequests, wantSignIns int32) {
			t.Helper()
			before := requests.Load()
			got, err := sendThrough(t, rt, "x")
			if got != status || err != nil || requests.Load()-before != wantRequests ||
				source.n.Load() != wantSignIns {
				t.Errorf("%s: got %d, %v after %d requests and %d sign-ins in all, want %d after %d and "+
					"%d", name, got, err,
					requests.Load()-before, source.n.Load(), status, wantRequests, wantSignIns)
			}
		}

		newest.Store(1)
		check("first token", 200, 1, 1)
		newest.Store(2)
		check("the session ended", 200, 2, 2)
		newest.Store(9)
		check("within five minutes", 403, 1, 2)
		time.Sleep(5 * time.Minute)
		check("a right is missing", 403, 2, 3)
		check("again within five minutes", 403, 1, 3)
		time.Sleep(5 * time.Minute)
		source.fails.Store(true)
		check("the sign-in fails", 403, 1, 4)
		newest.Store(3)
		check("the old credential still works", 200, 1, 4)
	})
}

// A right is missing for some requests, so the sign-in of the next five minutes is used up. Then
// the session ends, too: after five refusals in a row a sign-in follows nevertheless. A CMS that
// lets everybody read answers look-ups meanwhile.
func TestTransport_RenewsAnEndedSessionAfterAMissingRight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &counted{life: time.Hour}
		var newest atomic.Int32
		rt := signin.NewTransport(roundTrip(func(req *http.Request) (int, string) {
			isValid := req.Header.Get("Authorization") == fmt.Sprintf("Bearer token-%d",
				newest.Load())
			if isRead := req.Method == http.MethodGet; isRead ||
				isValid && req.URL.Path != "/forbidden" {
				return 200, ""
			}
			return 403, "no"
		}), signin.NewKeeper(source, time.Now))

		send := func(method, path string) int {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), method, "https://cms.example"+path,
				http.NoBody)
			if err != nil {
				t.Fatal(err)
			}

			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}

			_ = resp.Body.Close()

			return resp.StatusCode
		}

		newest.Store(1)
		send("POST", "/")
		newest.Store(2)
		send("POST", "/forbidden")

		for i := range 50 {
			if got := send("POST", "/forbidden"); got != 403 {
				t.Errorf("a right is missing: got %d, want 403", got)
			}

			if got := send("POST", "/"); got != 200 {
				t.Errorf("request %d beside: got %d, want 200", i, got)
			}

			time.Sleep(2 * time.Second)
		}

		if n := source.n.Load(); n != 2 {
			t.Errorf("a right is missing: got %d sign-ins, want 2", n)
		}

		newest.Store(3)

		for i := range 5 {
			want := 403
			if i == 4 {
				want = 200
			}

			send("GET", "/")
			if got := send("POST", "/"); got != want {
				t.Errorf("request %d after the end of the session: got %d, want %d", i+1, got, want)
			}
		}

		for range 20 { // all is forbidden, and no write was taken since
			send("POST", "/forbidden")
			time.Sleep(2 * time.Second)
		}

		if n := source.n.Load(); n != 4 {
			t.Errorf("in the end: got %d sign-ins, want 4", n)
		}
	})
}

// Many lanes find the session ended at the same time: all wait for one sign-in, and none fails.
func TestTransport_OneRenewalAfterMany403(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &counted{life: time.Hour, takes: time.Second}
		var ended atomic.Bool
		rt := signin.NewTransport(roundTrip(func(req *http.Request) (int, string) {
			if ended.Load() && req.Header.Get("Authorization") == "Bearer token-1" {
				return 403, "no"
			}
			return 200, ""
		}), signin.NewKeeper(source, time.Now))
		if status, err := sendThrough(t, rt, "x"); status != 200 || err != nil {
			t.Fatalf("got %d, %v, want 200", status, err)
		}

		ended.Store(true)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if status, err := sendThrough(t, rt, "x"); status != 200 || err != nil {
					t.Errorf("got %d, %v, want 200", status, err)
				}
			})
		}

		all.Wait()
		if source.n.Load() != 2 {
			t.Errorf("got %d sign-ins, want 2", source.n.Load())
		}
	})
}

// A fixed credential has no other one, so the answer 403 is final.
func TestTransport_FixedCredentialAfter403(t *testing.T) {
	t.Parallel()
	var requests int
	rt := signin.NewTransport(
		roundTrip(func(*http.Request) (int, string) { requests++; return 403, "" }),
		signin.NewKeeper(signin.Fixed{Headers: http.Header{"Authorization": {"Bearer token"}}},
			time.Now))
	if status, err := sendThrough(t, rt, "x"); status != 403 || err != nil || requests != 1 {
		t.Errorf("got %d, %v after %d requests, want 403 after 1", status, err, requests)
	}
}

// If the token endpoint fails, no request is sent, and many requests within a second cause only one
// sign-in.
func TestTransport_DeadEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &counted{life: time.Hour}
		source.fails.Store(true)
		rt := signin.NewTransport(roundTrip(func(*http.Request) (int, string) {
			t.Error("a request was sent without a credential, want none")
			return 200, ""
		}), signin.NewKeeper(source, time.Now))

		for range 100 {
			_, err := sendThrough(t, rt, "x")
			var failed *signin.Error
			if !errors.As(err, &failed) || !strings.HasPrefix(err.Error(), "sign-in: ") {
				t.Fatalf("got %v, want a sign-in error", err)
			}
		}

		if source.n.Load() != 1 {
			t.Errorf("got %d sign-ins, want 1", source.n.Load())
		}
	})
}

// After a failed renewal, the Keeper uses the old credential until it expires.
func TestTransport_RenewalFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &counted{life: time.Hour}
		rt := signin.NewTransport(
			roundTrip(func(*http.Request) (int, string) { return 200, "" }),
			signin.NewKeeper(source, time.Now),
		)

		for _, c := range []struct {
			fails bool
			after time.Duration
			isOK  bool
		}{{false, 0, true}, {true, 50 * time.Minute, true}, {true, 5 * time.Minute, true},
			{true, 6 * time.Minute, false}, {false, time.Minute, true}} {
			source.fails.Store(c.fails)
			time.Sleep(c.after)
			status, err := sendThrough(t, rt, "x")
			if (err == nil && status == 200) != c.isOK {
				t.Errorf("after %s: got %d, %v; want success: %v", c.after, status, err, c.isOK)
			}

			synctest.Wait()
		}
	})
}

func fetchCredential(t *testing.T, s signin.Settings, tools signin.Tools) signin.Credential {
	t.Helper()
	if tools.Now == nil {
		tools.Now = time.Now
	}

	source, err := s.NewSource(tools)
	if err != nil {
		t.Fatal(err)
	}

	c, err := source.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	return c
}

func TestSettings_Fixed(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]signin.Settings{
		"Basic d2VpcjphIGI6Yw==": {Basic: &signin.Basic{User: "weir", Password: "a b:c"}},
		"Bearer abc":             {Bearer: "abc"},
		"Key abc":                {Header: &signin.Header{Name: "authorization", Value: "Key abc"}},
	} {
		if got := fetchCredential(t, s, signin.Tools{}).Headers.Get("Authorization"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSettings_OAuth2(t *testing.T) {
	t.Parallel()
	for style, hasHeader := range map[string]bool{"header": true, "params": false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm()
			user, password, _ := r.BasicAuth()
			if !hasHeader {
				user, password = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
			}

			if user != "id" || password != "s3cret" ||
				r.PostForm.Get("audience") != "https://api.example" ||
				r.PostForm.Get("grant_type") != "client_credentials" {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(401)
				fmt.Fprintf(w, `{"error":"invalid_client","error_description":"s3cret is wrong"}`)
				return
			}

			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"access_token":"abc","token_type":"bearer","expires_in":299}`)
		}))

		t.Cleanup(server.Close)
		s := signin.Settings{
			OAuth2: &signin.OAuth2{
				TokenURL:     server.URL,
				ClientID:     "id",
				ClientSecret: "s3cret",
				Style:        style,
				Params:       map[string]string{"audience": "https://api.example"},
			},
		}

		c := fetchCredential(t, s, signin.Tools{Transport: http.DefaultTransport})
		if left := time.Until(c.ExpiresAt); c.Headers.Get("Authorization") != "Bearer abc" ||
			left < 290*time.Second ||
			left > 299*time.Second {
			t.Errorf("%s: got %v, want Authorization \"Bearer abc\" and left 4m50s to 4m59s", style,
				c)
		}

		s.OAuth2.Params = nil
		source, err := s.NewSource(signin.Tools{Transport: http.DefaultTransport})
		if err != nil {
			t.Fatal(err)
		}

		_, err = source.Fetch(t.Context())
		if err == nil || !strings.Contains(err.Error(), "401 invalid_client") ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want 401 invalid_client without the secret", style, err)
		}
	}
}

// An error must not quote the address or the answer of a token endpoint.
func TestSettings_OAuth2HidesAnswers(t *testing.T) {
	t.Parallel()
	for body, status := range map[string]int{"<html>s3cret": 200, `{"token":"s3cret"}`: 200,
		"s3cret": 503} {
		s := signin.Settings{
			OAuth2: &signin.OAuth2{
				TokenURL:     "https://login.example/token?key=s3cret",
				ClientID:     "id",
				ClientSecret: "s3cret",
			},
		}

		source, err := s.NewSource(
			signin.Tools{Transport: roundTrip(func(*http.Request) (int, string) { return status, body })},
		)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := source.Fetch(t.Context()); err == nil ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want an error without \"s3cret\"", body, err)
		}
	}
}

func TestSettings_JWT(t *testing.T) {
	t.Parallel()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}

	text := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}))
	for name, c := range map[string]struct {
		settings signin.JWT
		key      any
	}{
		"Hex": {
			signin.JWT{Alg: "HS256", Key: "00ff", KeyIs: "hex", KeyID: "id1",
				Aud: "/admin/", TTL: "5m", Scheme: "Ghost"},
			[]byte{0, 0xff},
		},
		"RSA": {
			signin.JWT{Alg: "RS256", Key: signin.Secret(strings.ReplaceAll(text, "\n", `\n`)),
				KeyID: "id1", Aud: "/admin/", Scheme: "Ghost"},
			&private.PublicKey,
		},
		"Text": {
			signin.JWT{Alg: "HS256", Key: "secret", KeyID: "id1", Aud: "/admin/", Scheme: "Ghost"},
			[]byte("secret"),
		},
	} {
		credential := fetchCredential(t, signin.Settings{JWT: &c.settings}, signin.Tools{})
		signed, isGhost := strings.CutPrefix(credential.Headers.Get("Authorization"), "Ghost ")
		token, err := jwt.Parse(
			signed,
			func(*jwt.Token) (any, error) { return c.key, nil },
			jwt.WithAudience("/admin/"),
			jwt.WithExpirationRequired(),
		)
		if err != nil || !isGhost || token.Header["kid"] != "id1" ||
			time.Until(credential.ExpiresAt) > 5*time.Minute {
			t.Errorf("%s: got %v, %v, want a token of the key id1, for 5 min at most", name,
				token, err)
		}
	}
}

func TestSettings_Azure(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(time.Hour)
	c := fetchCredential(t, signin.Settings{Azure: &signin.Azure{Scope: "api://cms/.default"}},
		signin.Tools{
			Azure: func(_ context.Context, scope string) (string, time.Time,
				error) {
				return "for-" + scope, at, nil
			}})
	if c.Headers.Get("Authorization") != "Bearer for-api://cms/.default" || !c.ExpiresAt.Equal(at) {
		t.Errorf("got %v, want Authorization \"Bearer for-api://cms/.default\" and ExpiresAt %v", c,
			at)
	}
}

func TestSettings_Refuses(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]signin.Settings{
		"has 2 ways (basic, bearer)": {Basic: &signin.Basic{User: "a", Password: "b"},
			Bearer: "c"},
		"user and password are both needed": {Basic: &signin.Basic{User: "a"}},
		"cannot have a colon":               {Basic: &signin.Basic{User: "a:b", Password: "c"}},
		"is not the name of a header":       {Header: &signin.Header{Name: "a b", Value: "s3cret"}},
		"has a control character":           {Bearer: "s3cret\n"},
		"tokenUrl is not an absolute": {
			OAuth2: &signin.OAuth2{TokenURL: "/token", ClientID: "a", ClientSecret: "s3cret"},
		},
		"clientId and clientSecret": {
			OAuth2: &signin.OAuth2{TokenURL: "https://a/t", ClientSecret: "s3cret"},
		},
		"must be header or params": {
			OAuth2: &signin.OAuth2{TokenURL: "https://a/t", ClientID: "a", ClientSecret: "s3cret",
				Style: "x"},
		},
		"must be HS256 or RS256": {JWT: &signin.JWT{Alg: "none", Key: "s3cret"}},
		"not a private RSA key":  {JWT: &signin.JWT{Alg: "RS256", Key: "s3cret"}},
		"not hexadecimal": {JWT: &signin.JWT{Alg: "HS256", Key: "s3cret",
			KeyIs: "hex"}},
		"must be text, hex or base64": {JWT: &signin.JWT{Alg: "HS256", Key: "s3cret",
			KeyIs: "x"}},
		"ttl is \"soon\" and must be": {JWT: &signin.JWT{Alg: "HS256", Key: "s3cret",
			TTL: "soon"}},
		"key is missing":                       {JWT: &signin.JWT{Alg: "HS256"}},
		"scope is missing":                     {Azure: &signin.Azure{}},
		"has 0 ways () and must have one: bas": {},
	} {
		if _, err := s.NewSource(signin.Tools{}); err == nil ||
			!strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("got the error %v, want %q without the secret", err, want)
		}
	}
}
