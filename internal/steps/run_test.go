package steps_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/steps"
	"weir/internal/weir"
)

// If a write gets no answer, the CMS may still work on the write, so Result.Unanswered is true. A
// look-up changes nothing, so Unanswered is false.
func TestSender_NoAnswerInTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step       string
		isCutOff   bool
		want       weir.Outcome
		unanswered bool
	}{
		"LookUpTimesOut":   {"{ get: /a }", false, weir.OutcomeUnavailable, false},
		"QueryTimesOut":    {"{ graphql: 'query { a }' }", false, weir.OutcomeUnavailable, false},
		"WriteTimesOut":    {"{ post: /a }", false, weir.OutcomeRetry, true},
		"MutationTimesOut": {"{ graphql: 'mutation { a }' }", false, weir.OutcomeRetry, true},
		"LookUpCutOff":     {"{ get: /a }", true, weir.OutcomeNone, false},
		"WriteCutOff":      {"{ put: /a }", true, weir.OutcomeNone, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, release := make(chan struct{}), make(chan struct{})
			s := newSender(
				t,
				articleWithSteps("      - "+c.step+"\n      - { post: /later }\n"),
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					close(arrived)
					<-release
				}),
				func(cfg *steps.Config) {
					if !c.isCutOff {
						cfg.Timeout = 100 * time.Millisecond
					}
				},
			)
			defer close(release)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.isCutOff {
				go func() { <-arrived; cancel() }()
			}

			if r := s.Send(ctx, newDelivery("<a/>")); r.Outcome != c.want ||
				r.Unanswered != c.unanswered {
				t.Errorf("got %+v, want %s, unanswered: %v", r, c.want, c.unanswered)
			}
		})
	}
}

func TestSender_Until(t *testing.T) {
	t.Parallel()
	const step = `
      - name: published
        get: /job
        on: [ { when: json.state == 'failed', do: retry, say: "the job has failed" } ]
        until: json.state == 'done'
        every: 1ms
        for: `

	for name, c := range map[string]struct {
		states string
		within string
		want   weir.Outcome
		says   string
		sent   int
	}{
		"Done": {"queued running done", "10s", weir.OutcomeDelivered, "", 3},
		"Failed": {"queued failed", "10s", weir.OutcomeRetry,
			"published: 200: the job has failed", 2},
		"Never": {"queued", "20ms", weir.OutcomeRetry,
			"published: json.state == 'done' does not hold after 20ms", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, sent := strings.Fields(c.states), 0
			s := newSender(
				t,
				articleWithSteps(step+c.within+"\n"),
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = io.WriteString(w, `{"state":"`+states[min(sent, len(states)-1)]+`"}`)
					sent++
				}),
			)

			r := s.Send(t.Context(), newDelivery("<a/>"))
			if r.Outcome != c.want || !strings.Contains(r.Reason, c.says) ||
				c.sent != 0 && sent != c.sent ||
				len(r.Steps) > 10 {
				t.Errorf("got %+v after %d requests; want %s with %q after %d requests, and 10 records at most", r,
					sent, c.want, c.says, c.sent)
			}
		})
	}
}

// TestSender_Bodies checks that values of a message are escaped: a value never becomes markup, a
// further field, or a further part of the address.
func TestSender_Bodies(t *testing.T) {
	t.Parallel()
	const hostile = `<article><title>&lt;b&gt;"x" &amp; 'y'</title><path>a/../b?c=d#e</path>` +
		`<dots>..</dots><tag>1</tag><tag>2&amp;3</tag><mixed>` + "\n a <i>b\n\tc</i>  d  " +
		`</mixed></article>`
	for name, c := range map[string]struct{ step, address, kind, body string }{
		"Path": {
			`{ get: "/i/{{ text('./path') }}/{{ text('./dots') }}" }`,
			"/i/a%2F..%2Fb%3Fc=d%23e/%2E%2E", "", "",
		},
		"Query": {
			`{ get: "?q={{ text('./path') }}&r={{ text('./title') }}" }`,
			"/?q=a%2F..%2Fb%3Fc%3Dd%23e&r=%3Cb%3E%22x%22+%26+%27y%27", "", "",
		},
		"JSON": {
			`{ post: /a, json: { t: "{{ text('./title') }}", u: "-{{ text('./title') }}-" } }`,
			"/a",
			"application/json", `{"t":"<b>\"x\" & 'y'","u":"-<b>\"x\" & 'y'-"}`,
		},
		"Line": {
			`{ post: /a, json: { t: "{{ text('./mixed') }}", u: "{{ line('./mixed') }}", v: "{{ line('./none') }}" } }`,
			"/a", "application/json", `{"t":"a b\n\tc  d ","u":"a b c d "}`,
		},
		"EmptyList": {
			`{ post: /a, json: { t: "{{ texts('./none') }}" } }`, "/a", "application/json",
			`{"t":[]}`,
		},
		"Form": {
			`{ post: /a, form: { t: "{{ texts('./tag') }}", n: "{{ text('./none') }}" } }`, "/a",
			"application/x-www-form-urlencoded", "t=1&t=2%263",
		},
		"XML": {
			`{ post: /a, xml: "<m a=\"{{ text('./title') }}\" n=\"{{ text('./none') }}\">{{ text('./title') }}` +
				`<k>${KEY}</k></m>" }`,
			"/a", "text/xml; charset=utf-8",
			`<m a="&lt;b>&quot;x&quot; &amp; 'y'">&lt;b&gt;"x" &amp; 'y'<k>value-of-KEY</k></m>`,
		},
		"CDATA": {
			`{ post: /a, xml: "<m><![CDATA[{{ text('./title') }}]]></m>" }`, "/a",
			"text/xml; charset=utf-8",
			`<m>&lt;b&gt;"x" &amp; 'y'</m>`,
		},
		"Message": {`{ post: /a, body: message }`, "/a", "application/xml", hostile},
		"GraphQL": {
			`{ graphql: "mutation($t: String) { a(t: $t) }", variables: { t: "{{ text('./title') }}" } }`, "/",
			"application/json",
			`{"query":"mutation($t: String) { a(t: $t) }","variables":{"t":"<b>\"x\" & 'y'"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var address, kind, body string
			s := newSender(
				t,
				articleWithSteps("      - "+c.step+"\n"),
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					content, _ := io.ReadAll(r.Body)
					address, kind, body = r.URL.RequestURI(), r.Header.Get("Content-Type"),
						string(content)
					_, _ = io.WriteString(w, `{"data":{}}`)
				}),
			)
			if r := s.Send(t.Context(), newDelivery(hostile)); r.Outcome != weir.OutcomeDelivered {
				t.Errorf("got %+v, want Outcome delivered", r)
			}

			if address != c.address || kind != c.kind || body != c.body {
				t.Errorf("got %s %s\n%s\nwant %s %s\n%s", address, kind, body, c.address,
					c.kind, c.body)
			}
		})
	}
}

func TestSender_Headers(t *testing.T) {
	t.Parallel()
	var got []http.Header
	s := newSender(t, "delivery: { headers: { X-Fixed: a } }\n"+articleWithSteps(`
      - { name: find, get: /a }
      - { put: /a, headers: { If-Match: "{{ find.headers['eTag'] }}", X-Fixed: b,
          X-None: "{{ find.headers['x-none'] }}" } }
`), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header)
		w.Header().Set("ETag", `"v1"`)
	}))

	d := newDelivery("<a/>")
	if r := s.Send(t.Context(), d); r.Outcome != weir.OutcomeDelivered || len(got) != 2 {
		t.Fatalf("got %+v after %d requests, want Outcome delivered and 2", r, len(got))
	}

	_, hasNone := got[1]["X-None"]
	if got[0].Get("X-Fixed") != "a" || got[1].Get("X-Fixed") != "b" ||
		got[1].Get("If-Match") != `"v1"` || hasNone ||
		got[1].Get(
			"Weir-Fence",
		) != "7" || got[1].Get("Weir-Key") != "%2Fnews%2F1" ||
		len(got[1].Values("Idempotency-Key")) != 1 {
		t.Errorf("got the headers %v, want the headers of the steps and the headers of Weir", got)
	}
}
