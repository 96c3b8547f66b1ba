package app

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/diagnosis"
	"weir/internal/steps"
	"weir/internal/trial"
	"weir/internal/weir"
)

// withUserInfo has a secret in each part of delivery.url that can have one.
const withUserInfo = `
delivery: { url: "${CMS_ADDRESS}" }
contracts:
  - name: chain
    root: chain
    key: ./@path
    steps:
      - { name: find, get: "/items?ref={{ key }}&cOde=of-the-step" }
      - { name: write, post: /items, json: { ref: "{{ key }}" }, headers: { X-CSRF-Token: "{{ find.json.token }}" } }
  - { name: plain, root: plain, key: ./@path }
`

const password = "pAsSw0rd/in+env"

// noSecretIn fails the test if a text has the password of withUserInfo's address or another secret
// of the test.
func noSecretIn(t *testing.T, what, text string) {
	t.Helper()
	basic := base64.StdEncoding.EncodeToString([]byte("weir:" + password))
	for _, secret := range []string{password, basic, "key-of-cms", "of-the-step", "csrf-of-cms"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s: got %s, want no %s in it", what, text, secret)
		}
	}
}

// startRepeater starts a CMS whose answers repeat the credential of the request, and have the token
// of a session.
func startRepeater(t *testing.T) (address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-CSRF-Token", "csrf-of-cms")
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		fmt.Fprintf(w, `{"token":"csrf-of-cms","message":"not for %s at %s"}`,
			r.Header.Get("Authorization"), r.URL)
	}))

	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "http://", "http://weir:pAsSw0rd%2Fin%2Benv@", 1) +
		"/api?CODE=key-of-cms"
}

// net/http adds the header Authorization for the user info of an address before the trial sees the
// request.
func TestApp_TrialsOfThePageShowNoCredential(t *testing.T) {
	t.Parallel()
	a, err := newTestApp(t, withUserInfo, "CMS_ADDRESS", startRepeater(t))
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"chain", "plain"} {
		m := &weir.Message{Contract: name, Key: "/1", ContentType: "application/xml",
			Body: []byte("<" + name + ` path="/1"/>`)}
		got := a.newTrialRunner(false, nil, nil).RunTrial(t.Context(),
			weir.Delivery{Message: m, Attempt: 1}, trial.Answers{})
		text := got.FormatText()
		noSecretIn(t, name, text)

		if !strings.Contains(text, "Authorization: …\n") ||
			!strings.Contains(strings.ToLower(text), "code=…") {
			t.Errorf("%s: got %s, want the address and the headers with hidden secrets", name, text)
		}
	}
}

// The commands try --send and try --record show and store the answers of the CMS.
func TestTrials_ShowNoCredential(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t, withUserInfo, "CMS_ADDRESS", startRepeater(t))
	for _, isLive := range []bool{false, true} {
		trials, err := OpenTrials(env, isLive)
		if err != nil {
			t.Fatal(err)
		}

		recorded := map[string][]trial.Answer{}
		trials.RecordAnswers(func(step string, a trial.Answer) { recorded[step] = append(recorded[step], a) })

		for _, name := range []string{"chain", "plain"} {
			got := trials.Try(t.Context(), "application/xml", []byte("<"+name+` path="/1"/>`),
				trial.Answers{})
			noSecretIn(t, name, got.FormatText())
			if isLive && !strings.Contains(got.Reason, "not for Basic") {
				t.Errorf("%s: got %+v, want the words of the CMS", name, got)
			}
		}

		text, err := trial.FormatAnswers(recorded)
		noSecretIn(t, "recorded answers", string(text))

		if err != nil || isLive != (len(recorded) == 3) {
			t.Errorf("got the answers %s and %v, want those of 3 requests of a live trial", text,
				err)
		}
	}
}

// Single requests and chains hide the same secrets in the results of attempts.
func TestApp_ResultsHaveNoCredential(t *testing.T) {
	t.Parallel()
	a, err := newTestApp(t, withUserInfo, "CMS_ADDRESS", startRepeater(t))
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"chain", "plain"} {
		m := &weir.Message{Contract: name, Key: "/1", ContentType: "application/xml",
			Body: []byte("<" + name + ` path="/1"/>`)}
		got := a.sender.Send(t.Context(), weir.Delivery{Message: m, Attempt: 1})
		noSecretIn(t, name, got.Reason+got.Body)
		if !strings.Contains(got.Reason, "not for Basic") {
			t.Errorf("%s: got %+v, want the words of the CMS", name, got)
		}
	}
}

func TestSettings_FixedSecretsAreFoundByType(t *testing.T) {
	t.Parallel()
	a, err := newTestApp(t, minimal+`
upstreams: [{ name: shop, keys: ["${KEY}"] }]
callbacks: { allowedHosts: [{ host: a.example, secret: "${HOOK}" }] }
`, "KEY", "upstream-key-0123456789abcdef", "HOOK", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"HTTPS_PROXY", "http://weir:word-of-proxy@proxy.example:3128")
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"upstream-key-0123456789abcdef",
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"word-of-proxy", base64.StdEncoding.EncodeToString([]byte("weir:word-of-proxy"))} {
		if !slices.Contains(a.currentSecrets(), want) {
			t.Errorf("got %q, want %s among the secrets", a.currentSecrets(), want)
		}
	}
}

// A proxy's address that cannot be parsed stands in the error of each attempt.
func TestSecrets_HideTheUserInfoOfAnyAddress(t *testing.T) {
	t.Parallel()
	client, err := steps.New(steps.Config{URL: "http://cms.example", Timeout: time.Minute,
		Now: time.Now, Transport: failing{}})
	if err != nil {
		t.Fatal(err)
	}

	got := client.Send(t.Context(), weir.Delivery{Message: &weir.Message{}})
	if want := `invalid proxy address "ht!tp://…@proxy"`; !strings.Contains(got.Reason, want) {
		t.Errorf("got %q, want %s in it", got.Reason, want)
	}
}

type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("invalid proxy address %q: %w", "ht!tp://weir:word-of-proxy@proxy",
		io.ErrUnexpectedEOF)
}

// A secret can stand in the wrong place of weir.yaml. The problem quotes the wrong value, and is
// printed and logged.
func TestSettings_ProblemsHaveNoValuesOfVariables(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"upstreams: [{ name: a, keys: \"${KEY}\" }]", "lanes: ${KEY}", "retention: ${KEY}",
		"callbacks: ${KEY}",
		"log: { level: \"${KEY}\" }", "callbacks: { allowedHosts: [\"${KEY}\"] }",
		"upstreams: [{ name: a, signature: \"${KEY}\", keys: [a] }]",
		"notify: [{ url: \"${KEY}\", secret: \"${KEY}\", events: [\"${KEY}\"] }]",
	} {
		_, err := newTestApp(t, minimal+text+"\n", "KEY", `s3cret "val/+`)
		if err == nil || strings.Contains(err.Error(), "s3cret") ||
			strings.Contains(err.Error(), "val/") {
			t.Errorf("%s: got %v, want a problem without the value", text, err)
		}
	}

	if _, err := newTestApp(t, minimal+"lanes: ${LANES}\n", "LANES", "9999"); err == nil ||
		!strings.Contains(err.Error(), "9999") {
		t.Errorf("got %v, want the short value in the problem", err)
	}
}

// weir check prints the texts of libraries, such as the error of a proxy, and the words of the CMS
// about a sample.
func TestDiagnose_ShowsNoSecretAndNoRedactedValue(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"message":"%s is refused for %s"}`, r.URL.Query().Get("name"),
			r.Header.Get("Authorization"))
	}))

	t.Cleanup(server.Close)
	const settings = `
delivery: { url: "${CMS_ADDRESS}" }
contracts:
  - name: person
    root: person
    key: ./@id
    redact: [./name]
    steps: [{ name: find, get: "/people?name={{ text('./name') }}" }]
`

	address := strings.Replace(server.URL, "http://", "http://weir:pAsSw0rd%2Fin%2Benv@", 1)
	a, err := newTestApp(t, settings, "CMS_ADDRESS", address, "HTTPS_PROXY",
		"http://word-of-proxy@proxy")
	if err != nil {
		t.Fatal(err)
	}

	d := a.newDiagnosis(diagnosis.Problems{})
	findings := d.CheckLookUps(t.Context(),
		[]diagnosis.Sample{{File: "s.xml", Body: []byte(`<person id="1"><name>Kowalska</name></person>`)}})
	if len(findings) != 1 || findings[0].Wrong == nil ||
		!strings.Contains(findings[0].Wrong.Error(), "is refused for Basic …") {
		t.Fatalf("got %+v, want the words of the CMS", findings)
	}

	noSecretIn(t, "finding", findings[0].Wrong.Error())
	if strings.Contains(findings[0].Wrong.Error(), "Kowalska") {
		t.Errorf("got %v, want no redacted value", findings[0].Wrong)
	}

	f := diagnosis.Finding{Detail: "through word-of-proxy",
		Wrong: fmt.Errorf("proxy: %w", errors.New("http://word-of-proxy@proxy"))}
	d.HideSecrets(&f)
	text := f.Detail + f.Wrong.Error()
	if strings.Contains(text, "word-of-proxy") || !strings.Contains(text, "proxy: ") {
		t.Errorf("got %q, want the texts without the secret", text)
	}
}
