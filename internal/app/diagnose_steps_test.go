package app

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/diagnosis"
)

const lookedUp = `
delivery: { url: "%s/api", signIn: { bearer: secret-token } }
contracts:
  - name: article
    root: article
    key: ./@id
    steps:
      - { name: find, get: "/items?ref={{ key }}" }
      - { name: create, when: len(find.json) == 0, post: /items, json: {} }
  - name: note
    root: note
    steps:
      - { name: all, get: /all, expect: 200 }
      - { name: create, post: /items, json: "{{ all.json }}" }
  - { name: write, root: write, steps: [{ post: /items }] }
  - { name: never, root: never, steps: [{ name: none, get: /none, when: 1 == 2 }] }
`

func TestDiagnoseLookUps(t *testing.T) {
	t.Parallel()
	const sample = `<article id="/a"/>`
	answer := func(status int, kind, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		}
	}
	for name, c := range map[string]struct {
		cms     http.HandlerFunc
		samples []string
		want    []string // wanted beginning of each finding
	}{
		"Good": {answer(200, "application/json", "[]"), []string{sample},
			[]string{"ok article: find answered 200 in ",
				"ok note: all answered 200 in ", "ok write: every step writes",
				"ok never: none was left out, because this is false: 1 == 2"}},
		"NoSample": {answer(200, "application/json", "[]"), nil,
			[]string{"ok article: find needs a message, so it was not sent; name a message by --sample FILE", "", "",
				""}},
		"BadSample": {answer(200, "application/json", "[]"), []string{"<article/>"}, []string{
			"wrong s.xml: accept: the message breaks a rule", "ok article: find needs a message",
			"", "", ""}},
		"401": {answer(401, "application/json", "{}"), []string{sample}, []string{
			"wrong article: find: 401 Unauthorized: {}; the CMS does not accept the credential",
			"wrong note", "", ""}},
		"403": {answer(403, "application/json", `{"message":"secret-token may not"}`),
			[]string{sample},
			[]string{"wrong article: find: 403 Forbidden: … may not; the CMS does not know the credential, or " +
				"forbids the step; see", "wrong note", "", ""}},
		"404": {answer(404, "application/json", ""), []string{sample}, []string{
			"wrong article: find: 404 Not Found; the CMS has nothing at the address", "", "", ""}},
		"HTML": {answer(200, "text/html", "<html>"), []string{sample}, []string{
			"wrong article: find: 200, but the answer is not JSON, but a page of HTML; " +
				"the address leads to a page for people", "", "", ""}},
		"Redirect": {answer(302, "text/html", ""), []string{sample},
			[]string{"wrong article: find: 302 Found: redirected, which is not followed; " +
				"the CMS sends the request elsewhere", "", "", ""}},
		"500": {answer(500, "text/plain", "oops"), []string{sample}, []string{
			"wrong article: find: 500 Internal Server Error: oops; see the step", "", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method != http.MethodGet ||
						r.Header.Get("Authorization") != "Bearer secret-token" {
						t.Errorf("got %s %s with Authorization %q, want GET with the token",
							r.Method, r.URL, r.Header.Get("Authorization"))
					}
					c.cms(w, r)
				}))

			t.Cleanup(server.Close)
			a, err := New(newEnvironment(t, fmt.Sprintf(lookedUp, server.URL)),
				slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}

			var samples []diagnosis.Sample
			for _, text := range c.samples {
				samples = append(samples, diagnosis.Sample{File: "s.xml", Body: []byte(text)})
			}

			findings := a.newDiagnosis(diagnosis.Problems{}).CheckLookUps(t.Context(), samples)
			if len(findings) != len(c.want) {
				t.Fatalf("got %+v, want %d findings", findings, len(c.want))
			}

			for i, f := range findings {
				got := "ok " + f.Detail
				if f.Wrong != nil {
					got = fmt.Sprintf("wrong %v; %s", f.Wrong, f.Todo)
				}

				if !strings.HasPrefix(got, c.want[i]) {
					t.Errorf("got %q, want %q", got, c.want[i])
				}
			}
		})
	}
}

// The finding mentions a successful sign-in only if the sign-in has sent requests. A sign-in with a
// fixed credential sends none, so it does not show whether the CMS accepts the credential.
func TestDiagnoseCMS_SignIn(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" {
			http.SetCookie(w, &http.Cookie{Name: "session", Value: "s1", Path: "/"})
			fmt.Fprint(w, `{"words":"the account is locked"}`)
		}
	}))

	t.Cleanup(server.Close)
	const login = `{ steps: [{ name: login, post: /login, success: %s, say: "{{ json.words }}" }], cookies: true }`
	for signIn, want := range map[string]string{
		fmt.Sprintf(login, "true"):  "ok accepts connections at ADDRESS, and the sign-in succeeds",
		fmt.Sprintf(login, "false"): "wrong sign-in: login: 200: the account is locked",
		"{ bearer: secret-token }":  "ok accepts connections at ADDRESS",
	} {
		a, err := New(newEnvironment(t, fmt.Sprintf("delivery: { url: %q, signIn: %s }\n"+
			"contracts: [{ name: article, root: article }]\n", server.URL, signIn)),
			slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("New with the sign-in %s = %v, want no error", signIn, err)
			continue
		}

		f := a.newDiagnosis(diagnosis.Problems{}).CheckCMS(t.Context())
		got := "ok " + f.Detail
		if f.Wrong != nil {
			got = "wrong " + f.Wrong.Error()
		}

		if want = strings.ReplaceAll(want, "ADDRESS", strings.TrimPrefix(server.URL, "http://")); got != want {
			t.Errorf("%s: got %q, want %q", signIn, got, want)
		}
	}
}
