package trial_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/cms"
	"weir/internal/steps"
	"weir/internal/trial"
	"weir/internal/weir"
)

// newRunner returns a runner whose trials consist of one request. Requests without a prepared
// answer go through live. If live is nil, the runner sends no request.
func newRunner(t *testing.T, live http.RoundTripper) *trial.Runner {
	t.Helper()
	client, err := steps.New(steps.Config{
		URL:     "https://weir:word-of-url@cms.example/a/{key}?code=abc&of={id}",
		Method:  "PUT",
		Headers: map[string]string{"X-Api-Key": "abc", "X-Other": "not-shown"},
		Timeout: time.Second, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}

	return &trial.Runner{Sender: client, Live: live, Now: time.Now, Secrets: trial.Secrets{
		Hide:    cms.NewMask("secret \"of\" <json>", "not-shown").Hide,
		Headers: []string{"x-api-key"}, Params: []string{"code"}}}
}

func newDelivery(body string) weir.Delivery {
	return weir.Delivery{Attempt: 1, Message: &weir.Message{ID: weir.ID{Epoch: 1, Seq: 1,
		Nonce: "00112233445566778899"}, Contract: "note", Key: "/n", ContentType: "application/xml",
		Body: []byte(body)}}
}

// In each case the body contains the secret in a different encoding. Only the body of the case
// Bytes contains no secret. The address and the headers of each request contain secrets, too.
func TestRunner_HidesSecrets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, want string }{
		"JSON":   {`{"a":"secret \"of\" <json>"}`, "{\n  \"a\": \"…\"\n}"},
		"XML":    {`<a>secret "of" &lt;json></a>`, `<a>…</a>`},
		"Quotes": {`<a>secret &quot;of&quot; &lt;json&gt;</a>`, `<a>…</a>`},
		"Form":   {`a=secret+%22of%22+%3Cjson%3E`, `a=…`},
		"Bytes":  {"\xff\xfe", "(2 bytes that are not text in UTF-8)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := newRunner(t, nil).RunTrial(t.Context(), newDelivery(c.body), trial.Answers{})
			if got.Verdict != trial.Open || got.Needs != "request" || len(got.Steps) != 1 {
				t.Fatalf("got %+v, want one request without an answer", got)
			}

			r := got.Steps[0].Request
			if r.Body != c.want {
				t.Errorf("got the body %s, want %s", r.Body, c.want)
			}

			if want := "https://…@cms.example/a/%2Fn?code=…&of="; !strings.HasPrefix(r.Address,
				want) {
				t.Errorf("got the address %s, want %s", r.Address, want)
			}

			for _, h := range r.Headers {
				if strings.Contains(h.Value, "abc") || strings.Contains(h.Value, "not-shown") {
					t.Errorf(`got %s: %s, want no "abc" and no "not-shown"`, h.Name, h.Value)
				}
			}
		})
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRunner_Verdicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers string
		live    transport
		want    trial.Verdict
		reason  string
	}{
		"Delivered": {"request: { status: 204 }", nil, trial.Delivered, ""},
		"Dead":      {"request: { status: 400, body: no }", nil, trial.Dead, "400 Bad Request: no"},
		"Retry":     {"request: { status: 500 }", nil, trial.Retry, "500 Internal Server Error"},
		"RateLimit": {"request: { status: 429, headers: { Retry-After: '9' } }", nil,
			trial.Unavailable, "429 Too Many Requests"},
		"OtherStep": {"create: { status: 200 }", nil, trial.Open, ""},
		"Connection": {"", func(*http.Request) (*http.Response, error) {
			return nil,
				errors.New("refused")
		}, trial.Unavailable, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers, err := trial.ParseAnswers([]byte(c.answers))
			if err != nil {
				t.Fatal(err)
			}

			var live http.RoundTripper
			if c.live != nil {
				live = c.live
			}

			got := newRunner(t, live).RunTrial(t.Context(), newDelivery("<note/>"), answers)
			if got.Verdict != c.want || got.Reason != c.reason {
				t.Errorf("got %s: %s, want %s: %s", got.Verdict, got.Reason, c.want, c.reason)
			}

			if isUnused := name == "OtherStep"; isUnused != (len(got.Unused) == 1) {
				t.Errorf("got the unused answers %q, want one unused answer: %v",
					got.Unused, isUnused)
			}
		})
	}
}

func TestParseAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"List":     {"a: [{ status: 200, body: x }, { status: 404 }]", ""},
		"JSON":     {`{"a": {"status": 200, "json": {"n": 9007199254740993, "s": "ü", "l": [], "z": null}}}`, ""},
		"Empty":    {"", ""},
		"Comments": {"# none\n", ""},
		"Status":   {"a: { status: 100 }", "answer 1 of a: status is 100 and must be 200 to 599"},
		"Field":    {"a: { status: 200, text: x }", `unknown field "text"`},
		"Text":     {"remembered: \"7\"\na: { status: 200 }", ""},
		"Number":   {"remembered: 7", ""},
		"NoText":   {"remembered: { status: 200 }", "remembered must be a text"},
		"NoAnswer": {"a: 200", "a must be an answer"},
		"Shape":    {"- { status: 200 }", "[1:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := trial.ParseAnswers([]byte(c.text))
			if (err == nil) != (c.want == "") ||
				err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got the error %v, want %q", err, c.want)
			}

			if remembered := name == "Text" ||
				name == "Number"; remembered != (got.Remembered == "7") {
				t.Errorf("got the remembered id %q, want the id 7: %v", got.Remembered, remembered)
			}

			want := `{"l":[],"n":9007199254740993,"s":"ü","z":null}`
			if name == "JSON" && got.Steps["a"][0].Body != want {
				t.Errorf("got %s, want %s", got.Steps["a"][0].Body, want)
			}
		})
	}
}

// If ParseAnswers reads a text that FormatAnswers wrote, it must return the answers that
// FormatAnswers was given.
func TestFormatAnswers(t *testing.T) {
	t.Parallel()
	given := map[string][]trial.Answer{
		"find": {{Status: 200, Headers: map[string]string{"ETag": `W/"1"`, "X-N": "0"},
			Body: "{\n  \"a\": \"b: # c\"\n}"}, {Status: 404, Body: "--- no\n...\ttab \n"}},
		"create": {{Status: 204}}}

	text, err := trial.FormatAnswers(given)
	if err != nil {
		t.Fatal(err)
	}

	got, err := trial.ParseAnswers(text)
	if err != nil || len(got.Steps) != 2 || len(got.Steps["find"]) != 2 ||
		got.Steps["create"][0].Status != 204 {
		t.Fatalf("got %+v and %v, want 2 steps, 2 answers of find, status 204 and no error of:\n%s",
			got, err, text)
	}

	for i, want := range given["find"] {
		a := got.Steps["find"][i]
		if a.Status != want.Status || a.Body != want.Body ||
			a.Headers["ETag"] != want.Headers["ETag"] ||
			a.Headers["X-N"] != want.Headers["X-N"] {
			t.Errorf("got %+v, want %+v of\n%s", a, want, text)
		}
	}
}

// A trial hides credentials by the names of headers and parameters, also if the settings do not
// know them.
func TestRunner_HidesCredentialsByName(t *testing.T) {
	t.Parallel()
	client, err := steps.New(steps.Config{Method: "PUT",
		URL: "https://weir:word-of-url@cms.example/a?Co%64e=key-of-host&v=1",
		Headers: map[string]string{"Cookie": "sid=abc", "Proxy-Authorization": "abc",
			"X-Session-Token": "abc", "X-Author": "shown"}, Timeout: time.Second, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}

	runner := &trial.Runner{Sender: client, Now: time.Now,
		Secrets: trial.Secrets{Hide: func(text string) string { return text },
			Params: []string{"code"}}}
	got := runner.RunTrial(t.Context(), newDelivery("<note/>"), trial.Answers{}).Steps[0].Request
	if want := "https://…@cms.example/a?Co%64e=…&v=1"; got.Address != want {
		t.Errorf("got the address %s, want %s", got.Address, want)
	}

	for _, h := range got.Headers {
		isHidden := slices.Contains([]string{"Authorization", "Cookie", "Proxy-Authorization",
			"X-Session-Token"}, h.Name)
		if isHidden != (h.Value == "…") {
			t.Errorf("got %s: %s, want a hidden value: %v", h.Name, h.Value, isHidden)
		}
	}
}

// An answer can have a token, such as one against forged requests. Neither the shown nor the
// recorded answer has it.
func TestRunner_HidesTokensInAnswers(t *testing.T) {
	t.Parallel()
	const body = `{"query":{"tokens":{"csrftoken":"4f2a77d1e8+\\\\"},"title":"shown"}}`
	live := transport(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200,
			Header:  http.Header{"Content-Type": {"application/json; charset=utf-8"}},
			Request: req, Body: io.NopCloser(strings.NewReader(body))}, nil
	})

	runner := newRunner(t, live)
	var recorded string
	runner.Record = func(_ string, a trial.Answer) { recorded = a.Body }
	got := runner.RunTrial(t.Context(), newDelivery("<note/>"), trial.Answers{})
	for _, text := range []string{got.Steps[0].Answer, recorded} {
		if strings.Contains(text, "4f2a77d1e8") || !strings.Contains(text, "shown") {
			t.Errorf("got the answer %s, want it without the token", text)
		}
	}
}
