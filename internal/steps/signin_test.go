package steps_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"

	"weir/internal/signin"
	"weir/internal/steps"
	"weir/internal/weir"
)

// signInSettings are the settings of a sign-in by requests.
type signInSettings struct {
	Steps   steps.Source `yaml:"steps"`
	Send    steps.Source `yaml:"send"`
	For     steps.Source `yaml:"for"`
	Cookies bool         `yaml:"cookies"`
}

func newSignIn(t *testing.T, text, url string) (*steps.SignIn, error) {
	t.Helper()
	return newSignInAt(t, text, url, time.Now)
}

// newSignInAt is newSignIn with a clock.
func newSignInAt(t *testing.T, text, url string, now func() time.Time) (*steps.SignIn, error) {
	t.Helper()
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		t.Fatal(err)
	}

	var s signInSettings
	if err := yaml.NodeToValue(file.Docs[0].Body, &s, yaml.Strict()); err != nil {
		t.Fatal(err)
	}

	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)

	return steps.NewSignIn(
		steps.SignInConfig{File: steps.NewFile(text, file.Docs, variable,
			func(string) string { return "s3cret" }),
			URL: url + "/api", Steps: s.Steps, Send: s.Send, For: s.For, Cookies: s.Cookies,
			Transport: transport,
			Timeout:   5 * time.Second, Now: now},
	)
}

// newPortal starts a CMS with a sign-in form, a session cookie and an anti-CSRF token. It returns
// the CMS's address.
func newPortal(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/login", func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("user") != "weir" || r.PostFormValue("password") != "s3cret" {
			http.Error(w, "s3cret is wrong", http.StatusForbidden)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "c1", Path: "/"})
	})

	mux.HandleFunc("GET /api/token", func(w http.ResponseWriter, r *http.Request) {
		if c, err := r.Cookie("session"); err != nil || c.Value != "c1" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"data":{"token":"t1","expires":900000}}`)
	})

	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	return server.URL
}

func TestSignIn_CookieAndToken(t *testing.T) {
	t.Parallel()
	s, err := newSignIn(t, `
steps:
  - { name: login, post: /login, form: { user: weir, password: "${PASSWORD}" } }
  - { name: token, get: /token, success: json.data.token != "" }
send: { X-CSRF-Token: "{{ token.json.data.token }}", X-App: weir }
cookies: true
for: "{{ token.json.data.expires / 1000 }}"
`, newPortal(t))
	if err != nil {
		t.Fatal(err)
	}

	c, err := s.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	life := time.Until(c.ExpiresAt)
	if c.Headers.Get("X-Csrf-Token") != "t1" || c.Headers.Get("X-App") != "weir" ||
		len(c.Cookies) != 1 ||
		c.Cookies[0].Value != "c1" ||
		life < 890*time.Second ||
		life > 900*time.Second {
		t.Errorf("got %+v with a life of %s, want X-Csrf-Token t1, X-App weir, 1 Cookie, Value c1 and 14m50s to 15m",
			c, life)
	}

	var _ signin.Source = s
}

// loginStep is the beginning of a list of steps. The CMS of newPortal accepts the credentials of
// the first step.
const loginStep = "steps: [ { post: /login, form: { user: weir, password: \"${PASSWORD}\" } }"

func TestSignIn_Fails(t *testing.T) {
	t.Parallel()
	for want, text := range map[string]string{
		"login: 403 Forbidden": "steps: [ { name: login, post: /login, form: { user: other } } ]\ncookies: true\n",
		"step1: 401":           "steps: [ { get: /token } ]\nsend: { A: \"{{ step1.json.data.token }}\" }\n",
		"step1: 404":           "steps: [ { get: /none } ]\ncookies: true\n",
		"send cannot be": loginStep +
			", { get: /token } ]\nsend: { A: \"{{ step2.json.data.none.x }}\" }\n",
		"the answers have no": "steps: [ { get: /none, expect: 404 } ]\ncookies: true\n",
		"does not fit success: ": loginStep +
			", { get: /token, success: body == 'x' } ]\ncookies: true\n",
	} {
		s, err := newSignIn(t, text, newPortal(t))
		if err != nil {
			t.Errorf("newSignIn(%s) = %v, want no error", text, err)
			continue
		}

		if _, err := s.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got the error %v, want %q without the secret", text, err, want)
		}
	}
}

func TestNewSignIn_Mistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"steps: [ { get: /a } ]\n": "[1:8] delivery.signIn.steps: the sign-in yields nothing",
		"steps: [ { get: /a, when: true } ]\ncookies: true\n": "[1:21] delivery.signIn.steps[0].when: a step of a " +
			"sign-in has no when",
		"steps: [ { post: /a, body: message } ]\ncookies: true\n": "signing in has no message",
		"steps: [ { get: \"/a?k={{ key }}\" } ]\ncookies: true\n": "key is of a message, and signing in",
		"steps: [ { get: /a } ]\ncookies: true\nfor: soon\n":      "[3:6] delivery.signIn.for: \"soon\" is neither",
		"steps: [ { get: /a } ]\ncookies: true\nfor: 8760h\n": "[3:6] delivery.signIn.for: \"8760h\": it is 365 " +
			"days, and at most 30 are believed",
		"steps: [ { get: /a } ]\ncookies: true\nfor: -1m\n": "[3:6] delivery.signIn.for: " +
			"\"-1m\": it is over already",
		"steps: [ { get: /a } ]\nsend: { \"A B\": x }\n":                      "is not the name of a header",
		"steps: [ { get: \"https://{{ 'a' }}.example/\" } ]\ncookies: true\n": "the host of an address cannot come",
	} {
		if _, err := newSignIn(t, text, "https://cms.example"); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got the error %v, want %q", text, err, want)
		}
	}
}

// The error of a failed sign-in quotes the text that the setting "say" selects, but hides the
// secrets of the settings.
func TestSignIn_Says(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"steps: [ { name: login, post: /login, form: { password: \"${PASSWORD}\" }, say: \"{{ body }}\" } ]\n" +
			"cookies: true\n": "login: 403: … is wrong",
		loginStep + ", { name: token, get: /token, success: json.none != nil, say: \"no {{ json.data.token }}\" } ]\n" +
			"cookies: true\n": "token: 200: no t1",
		loginStep + ", { name: token, get: /token, success: false, say: \"{{ json.none }}\" } ]\ncookies: true\n": "" +
			"token: 200, but the answer does not fit success: false",
		"steps: [ { name: login, post: /login, say: \"{{ json.error }}\" } ]\ncookies: true\n": "login: 403 Forbidden",
	} {
		s, err := newSignIn(t, text, newPortal(t))
		if err != nil {
			t.Errorf("newSignIn(%s) = %v, want no error", text, err)
			continue
		}

		if _, err := s.Fetch(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%s: got the error %v, want %q", text, err, want)
		}
	}
}

// numberedSignIns is a signin.Source whose tokens are t1, t2 and so on.
type numberedSignIns struct{ count int }

func (n *numberedSignIns) Fetch(context.Context) (signin.Credential, error) {
	n.count++
	return signin.Credential{Headers: http.Header{"Token": {fmt.Sprint("t", n.count)}}}, nil
}

func TestSender_SignsInAnewByRule(t *testing.T) {
	t.Parallel()
	const chain = `
      - { name: find, get: /find }
      - { name: write, post: /write, json: {}, on: [ { when: json?.error == 'session', do: signIn, say: "it ended" } ] }
`

	for name, c := range map[string]struct {
		good    string // the token that the CMS accepts
		ended   string // the answer to any other token
		status  int
		want    weir.Outcome
		reason  string
		steps   int
		signIns int
	}{
		"Once": {"t2", `{"error":"session"}`, 200, weir.OutcomeDelivered, "write: 200", 4, 2},
		"Twice": {"t3", `{"error":"session"}`, 200, weir.OutcomeUnavailable,
			"write: 200: it ended", 4, 2},
		"Gateway": {"t2", `{"error":"session"}`, 504, weir.OutcomeRetry,
			"write: 504: it ended", 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := &numberedSignIns{}
			s := newSender(t, articleWithSteps(chain),
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/write" && r.Header.Get("Token") != c.good {
						w.WriteHeader(c.status)
						fmt.Fprint(w, c.ended)
						return
					}
					fmt.Fprint(w, `{}`)
				}), signInBy(source))

			got := s.Send(t.Context(), newDelivery("<a/>"))
			if got.Outcome != c.want || !strings.HasPrefix(got.Reason, c.reason) ||
				len(got.Steps) != c.steps ||
				source.count != c.signIns {
				t.Errorf("got %+v with %d sign-ins, want %s with %q, %d steps and %d sign-ins", got,
					source.count, c.want, c.reason, c.steps, c.signIns)
			}
		})
	}
}

// signInBy returns a change of a sender's settings: requests get credentials of the given source.
func signInBy(source signin.Source) func(*steps.Config) {
	return func(c *steps.Config) {
		c.Transport, c.CanSignInAnew = signin.NewTransport(c.Transport,
			signin.NewKeeper(source, time.Now)), true
	}
}

// A GraphQL server answers 200 to a request with an expired token. If Weir cannot renew the
// credential, the outcome is unavailable.
func TestSender_GraphQLSignsInAnew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change []func(*steps.Config)
		want   weir.Outcome
	}{
		"Renewable": {[]func(*steps.Config){signInBy(&numberedSignIns{})}, weir.OutcomeDelivered},
		"Fixed":     {nil, weir.OutcomeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSender(t, articleWithSteps("      - { graphql: 'mutation { a }' }\n"),
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Token") == "t2" {
						fmt.Fprint(w, `{"data":{"a":1}}`)
						return
					}
					fmt.Fprint(w,
						`{"errors":[{"message":"sign in","extensions":{"code":"UNAUTHENTICATED"}}]}`)
				}), c.change...)
			if got := s.Send(t.Context(), newDelivery("<a/>")); got.Outcome != c.want {
				t.Errorf("got %+v, want %s", got, c.want)
			}
		})
	}
}

// The CMS names the end of a credential in many ways. A value that Weir does not believe is no
// failure of the sign-in: the credential is renewed after ten minutes, and the reason is known.
func TestSignIn_Lifetime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	at := now.Add(2 * time.Hour)
	for name, c := range map[string]struct {
		answer string
		want   time.Duration
		doubt  string
	}{
		"Seconds":      {"900", 15 * time.Minute, ""},
		"Fraction":     {"900.5", 15 * time.Minute, ""},
		"Text":         {`"900"`, 15 * time.Minute, ""},
		"Duration":     {`"15m"`, 15 * time.Minute, ""},
		"UnixTime":     {fmt.Sprint(at.Unix()), 2 * time.Hour, ""},
		"UnixText":     {fmt.Sprintf("%q", fmt.Sprint(at.Unix())), 2 * time.Hour, ""},
		"Milliseconds": {fmt.Sprint(at.UnixMilli()), 2 * time.Hour, ""},
		"RFC3339":      {`"` + at.Format(time.RFC3339) + `"`, 2 * time.Hour, ""},
		"MonthOfDays":  {"2592000", 720 * time.Hour, ""},
		"TooLong": {"3600000", 10 * time.Minute,
			"delivery.signIn.for: it is 42 days, and at most 30 are " + "believed"},
		"FarAhead": {fmt.Sprint(at.AddDate(5, 0, 0).Unix()), 10 * time.Minute,
			"at most 30 are believed"},
		"Over": {fmt.Sprint(at.Add(-3 * time.Hour).Unix()), 10 * time.Minute,
			"it is over already"},
		"Zero":     {"0", 10 * time.Minute, "it is over already"},
		"Negative": {"-5", 10 * time.Minute, "it is over already"},
		"Huge":     {"1e300", 10 * time.Minute, "at most 30 are believed"},
		"Nothing":  {"null", 10 * time.Minute, "its value is nil, and no number"},
		"Word":     {`"soon"`, 10 * time.Minute, "its value is a text, and no number"},
		"Object":   {"{}", 10 * time.Minute, "its value is an object, and no number"},
		"NaN":      {`"NaN"`, 10 * time.Minute, "no number of seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					fmt.Fprintf(w, `{"token":"t1","exp":%s}`, c.answer)
				}))

			t.Cleanup(server.Close)
			s, err := newSignInAt(t, "steps: [ { name: login, get: /login } ]\n"+
				"send: { Authorization: \"Bearer {{ login.json.token }}\" }\nfor: \"{{ login.json.exp "+
				"}}\"\n", server.URL, func() time.Time { return now })
			if err != nil {
				t.Fatal(err)
			}

			got, err := s.Fetch(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			if life := got.ExpiresAt.Sub(now); life.Truncate(time.Second) != c.want {
				t.Errorf("got a life of %s, want %s", life, c.want)
			}

			if c.doubt == "" && got.Doubt != "" || !strings.Contains(got.Doubt, c.doubt) {
				t.Errorf("got the doubt %q, want %q", got.Doubt, c.doubt)
			}
		})
	}
}

// A CMS answers 200 with a code of access to a token that has ended. Weir signs in anew and runs
// the chain again, once.
func TestSender_GraphQLRenewsAfterForbidden(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		good    string
		want    weir.Outcome
		refused bool
		signIns int
	}{
		"Ended":   {"t2", weir.OutcomeDelivered, false, 2},
		"NoRight": {"none", weir.OutcomeUnavailable, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := &numberedSignIns{}
			s := newSender(t, articleWithSteps("      - { graphql: 'mutation { a }' }\n"),
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Token") == c.good {
						fmt.Fprint(w, `{"data":{"a":1}}`)
						return
					}
					fmt.Fprint(w,
						`{"errors":[{"message":"Access denied","extensions":{"code":"KS_ACCESS_DENIED"}}]}`)
				}), signInBy(source))

			for range 2 {
				got := s.Send(t.Context(), newDelivery("<a/>"))
				if got.Outcome != c.want || got.Refused != c.refused || source.count != c.signIns {
					t.Errorf("got %+v after %d sign-ins, want %s, refused %v, after %d", got,
						source.count, c.want, c.refused, c.signIns)
				}
			}
		})
	}
}
