package app

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/weir"
)

const withSteps = `
delivery:
  url: ${CMS}
  signIn: { bearer: "${TOKEN}" }
contracts:
  - name: article
    root: article
    key: ./@path
    steps:
      - post: /items
        json: { key: "${KEY}", path: "{{ key }}" }
  - { name: plain, root: plain, key: ./@path }
`

func newTestApp(t *testing.T, text string, more ...string) (*App, error) {
	t.Helper()
	a, found := prepareApp(newEnvironment(t, text, more...), nil)
	return a, errors.Join(found.Settings, found.Contracts, found.CMS)
}

// If the value of a variable contains braces, Weir must send the braces unchanged, both in a step
// and in a sign-in. The message of a contract without steps must also be sent unchanged, in a
// request that is signed in.
func TestApp_Steps(t *testing.T) {
	t.Parallel()
	var got []string
	cms := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(
			got,
			strings.Join([]string{r.Method, r.URL.Path, r.Header.Get("Authorization"),
				string(body)}, " "),
		)

		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, "refused: "+r.Header.Get("Authorization")+string(body))
	}))

	t.Cleanup(cms.Close)
	a, err := newTestApp(t, withSteps, "CMS", cms.URL, "TOKEN", "secret{{1}}", "KEY", `a"{{ key }}`)
	if err != nil {
		t.Fatal(err)
	}

	for _, body := range []string{`<article path="/1"/>`, `<plain path="/1"/>`} {
		m, err := a.contracts.Accept(t.Context(), "application/xml", []byte(body))
		if err != nil {
			t.Fatal(err)
		}

		r := a.sender.Send(t.Context(), weir.Delivery{Message: &m, Attempt: 1})
		if r.Outcome != weir.OutcomeRejected || strings.Contains(r.Body+r.Reason, "secret{{1}}") {
			t.Errorf("%s: got %+v, want the outcome rejected, and no token in its texts", body, r)
		}
	}

	want := []string{
		`POST /items Bearer secret{{1}} {"key":"a\"{{ key }}","path":"/1"}`,
		`POST / Bearer secret{{1}} <plain path="/1"/>`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got the requests %q, want %q", got, want)
	}
}

func TestApp_StepsMistakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old, new string // old = a part of withSteps; new = the text that replaces this part
		problem  string // part of the error; "" = there is no error
	}{
		"Position": {
			"{{ key }}", "${KEY} {{ kye }}",
			"weir.yaml: [11:49] contracts[0].steps[0].json.path: kye is not known here; did you mean key?",
		},
		"UnquotedAttribute": {"key: ./@path", "key: @path", "write \"@name\" or ./@name"},
		"Unquoted": {"\"{{ key }}\"", "{{ key }}",
			"an expression without quotes; write \"{{ … }}\""},
		"UnquotedCondition": {
			"    steps:", "    steps:\n      - get: /a\n        on:\n          - { when: len(json.a ?? []) > 1, do: again }",
			"a condition with [ or { and without quotes",
		},
		"MissingVariable": {"${KEY}", "${NO_KEY}", "names ${NO_KEY}, which is not set"},
		"SecretExpression": {
			"{{ key }}", "{{ '${KEY}' }}",
			"a variable of the environment cannot stand in an expression",
		},
		"Placeholder": {"url: ${CMS}", "url: http://a/{key}",
			"with steps write {{ key }} in their addresses"},
		"Success": {
			"    steps:", "    success: ok\n    steps:",
			"with steps write success, an expression, in a step",
		},
		"TwoWays": {
			"bearer: \"${TOKEN}\"", "bearer: a, basic: { user: a, password: b }",
			"has 2 ways (basic, bearer)",
		},
		"TwoCredentials": {"  signIn:", "  headers: { authorization: a }\n  signIn:",
			"exclude each other"},
		"NoSteps": {
			"    steps:\n      - post: /items\n        json: { key: \"${KEY}\", path: \"{{ key }}\" }\n", "", "",
		},
		"SendWithoutSteps": {
			"bearer: \"${TOKEN}\"", "bearer: a, send: { A: b }",
			"send, cookies and for belong to steps",
		},
		"BadCertificate": {
			"  signIn:", "  tls: { ca: /no/such/file }\n  signIn:",
			"neither PEM nor the name of a file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(withSteps, c.old, c.new, 1)
			if text == withSteps {
				t.Fatalf("got settings without %q, want the case to replace that text", c.old)
			}

			_, err := newTestApp(t, text, "CMS", "http://127.0.0.1:1", "TOKEN", "abc", "KEY", "a")
			if c.problem == "" {
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}

			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("got %v, want an error with %q", err, c.problem)
			}
		})
	}
}
