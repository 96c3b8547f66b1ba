package steps_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/steps"
	"weir/internal/weir"
)

const published = upsert + `
      - name: publish
        post: /items/{{ create?.json.data.id ?? find.json.data[0].id }}/publish
`

// publishing is a store that also takes requests that publish an item.
type publishing struct{ store }

func (p *publishing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/publish") {
		// for a DELETE the store replaces the item, or answers 404 if it has none
		r.Method = http.MethodDelete
		r.Body = io.NopCloser(strings.NewReader(`{"slug":"news-1","published":true}`))
	}
	p.store.ServeHTTP(w, r)
}

func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		conn.Close()
	}
}

func answerWith(status int, contentType, body string, headers ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", contentType)
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func cutShort(w http.ResponseWriter) {
	w.Header().Set("Content-Length", "4000")
	_, _ = io.WriteString(w, `{"data":[`)
}

// faultCases are the cases of TestSender_FaultAtEachStep.
var faultCases = map[string]struct {
	fault      func(http.ResponseWriter)
	atLookUp   weir.Outcome
	atWrite    weir.Outcome
	unanswered bool // the result of a write is Unanswered
}{
	"AnswerLost": {hangUp, weir.OutcomeUnavailable, weir.OutcomeRetry, true},
	"HTML": {
		answerWith(200, "text/html", "<!DOCTYPE html><html><body>Sign in"), weir.OutcomeUnavailable,
		weir.OutcomeRetry, false,
	},
	"Empty": {answerWith(200, "application/json", ""), weir.OutcomeUnavailable,
		weir.OutcomeRetry, false},
	"NoContent": {answerWith(204, "application/json", ""), weir.OutcomeUnavailable,
		weir.OutcomeRetry, false},
	"Null": {answerWith(200, "application/json", "null"), weir.OutcomeUnavailable,
		weir.OutcomeRetry, false},
	"OtherShape": {
		answerWith(200, "application/json", `{"items":7}`), weir.OutcomeUnavailable,
		weir.OutcomeRetry, false,
	},
	"CutJSON": {
		answerWith(200, "application/json", `{"data":[{"id":1}`), weir.OutcomeUnavailable,
		weir.OutcomeRetry, false,
	},
	"MoreThanJSON": {
		answerWith(200, "application/json", `{"data":[]}{}`), weir.OutcomeUnavailable,
		weir.OutcomeRetry, false,
	},
	"CutShort": {cutShort, weir.OutcomeUnavailable, weir.OutcomeRetry, false},
	"TooLong": {
		answerWith(200, "application/json", `{"data":[],"x":"`+strings.Repeat("x", 2000)+`"}`),
		weir.OutcomeUnavailable, weir.OutcomeRetry, false,
	},
	"Unauthorized": {
		answerWith(401, "application/json", `{"message":"no"}`), weir.OutcomeUnavailable,
		weir.OutcomeUnavailable,
		false,
	},
	"Forbidden": {
		answerWith(403, "application/json", `{"message":"no"}`), weir.OutcomeUnavailable,
		weir.OutcomeUnavailable,
		false,
	},
	"RateLimit": {
		answerWith(429, "application/json", `{}`, "X-Reset", "7"), weir.OutcomeUnavailable,
		weir.OutcomeUnavailable,
		false,
	},
	"ServerError": {
		answerWith(500, "text/html", `<h1>Error establishing a database connection</h1>`),
		weir.OutcomeUnavailable,
		weir.OutcomeRetry, false,
	},
	"Maintenance": {
		answerWith(503, "text/html", `<h1>away</h1>`), weir.OutcomeUnavailable,
		weir.OutcomeUnavailable, false,
	},
	"GatewayTimeout": {answerWith(504, "text/html", ``), weir.OutcomeUnavailable,
		weir.OutcomeUnavailable, true},
	"Redirect": {
		answerWith(302, "text/html", ``, "Location", "/login?key=s3cret"), weir.OutcomeUnavailable,
		weir.OutcomeUnavailable, false,
	},
	"Stale": {answerWith(412, "application/json", `{}`), weir.OutcomeDelivered,
		weir.OutcomeDelivered, false},
	"Conflict": {answerWith(409, "application/json", `{}`), weir.OutcomeDelivered,
		weir.OutcomeDelivered, false},
	"BadRequest": {
		answerWith(400, "application/json", `{"message":"no such field"}`), weir.OutcomeUnavailable,
		weir.OutcomeRejected, false,
	},
}

// TestSender_FaultAtEachStep answers one of the three requests of the first attempt with a fault,
// before or after the request is carried out. The first attempt must have the outcome of the case.
// A second attempt must be delivered, and the CMS must then have one item.
func TestSender_FaultAtEachStep(t *testing.T) {
	t.Parallel()
	lookUp, write := 1, 2 // numbers of requests; request 3 publishes the item
	for name, c := range faultCases {
		for at, want := range map[int]weir.Outcome{lookUp: c.atLookUp, write: c.atWrite,
			3: c.atWrite} {
			for _, isAfter := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/%v", name, at, isAfter), func(t *testing.T) {
					t.Parallel()
					cms := &publishing{}
					fault := func(n int, w http.ResponseWriter, _ *http.Request) bool {
						if n == at {
							c.fault(w)
						}
						return n == at
					}

					if isAfter {
						cms.after = fault
					} else {
						cms.fault = fault
					}

					text := "delivery: { retryAfter: X-Reset, maxAnswer: 1000 }\n" +
						articleWithSteps(published)
					s := newSender(t, text, cms)
					d := newDelivery(`<article><title>A</title></article>`)
					r := s.Send(t.Context(), d)
					want := want
					if at == 3 && r.Outcome == weir.OutcomeDelivered {
						// some faults do no harm: no expression reads this answer
						want = weir.OutcomeDelivered
					}

					if r.Outcome != want || r.Unanswered != (c.unanswered && at != lookUp) ||
						r.Reason == "" ||
						strings.Contains(r.Reason, "s3cret") {
						t.Errorf("first attempt: got %+v, want %s", r, want)
					}

					if name == "RateLimit" && r.RetryAfter != 7*time.Second {
						t.Errorf("got a delay of %s, want 7s", r.RetryAfter)
					}

					if r := s.Send(t.Context(), d); r.Outcome != weir.OutcomeDelivered {
						t.Errorf("second attempt: got %+v, want delivered", r)
					}

					if len(cms.items) != 1 {
						t.Errorf("got %d items, want 1: %v", len(cms.items), cms.requests)
					}
				})
			}
		}
	}
}

// TestSender_ReadsByPost checks that Weir treats a POST with the setting "reads: true" as a
// look-up. If the answer cannot be read, the outcome is unavailable. If the answer is lost, the
// result is not Unanswered, because the request changes nothing in the CMS.
func TestSender_ReadsByPost(t *testing.T) {
	t.Parallel()
	const lookUp = "      - name: find\n        post: /search\n        xml: <methodCall><a>{{ key }}</a></methodCall>\n"
	for name, c := range map[string]struct {
		setting    string
		fault      func(http.ResponseWriter)
		want       weir.Outcome
		unanswered bool
	}{
		"Empty": {"        reads: true\n", answerWith(200, "text/html", ""),
			weir.OutcomeUnavailable, false},
		"Lost": {"        reads: true\n", hangUp, weir.OutcomeUnavailable, false},
		"WritesEmpty": {"        reads: false\n", answerWith(200, "text/html", ""),
			weir.OutcomeRetry, false},
		"WritesLost": {"", hangUp, weir.OutcomeRetry, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSender(t, articleWithSteps(lookUp+c.setting),
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.fault(w) }))
			got := s.Send(t.Context(), newDelivery(`<article/>`))
			if got.Outcome != c.want || got.Unanswered != c.unanswered {
				t.Errorf("got %+v, want %s, unanswered %v", got, c.want, c.unanswered)
			}
		})
	}
}

// TestSender_AgainHasAnEnd has a CMS whose index lags: the look-up misses an item, and the CMS
// refuses to create a second item with the same slug. Then a rule starts the steps again. If the
// third run is refused, too, the attempt must fail.
func TestSender_AgainHasAnEnd(t *testing.T) {
	t.Parallel()
	const rule = `
        on:
          - when: first(json?.errors ?? [])?.extensions?.code == 'RECORD_NOT_UNIQUE'
            do: again
            say: the slug is taken
`

	for name, c := range map[string]struct {
		lagging int // number of look-ups that miss the item
		want    weir.Outcome
		sent    int
	}{"Once": {1, weir.OutcomeDelivered, 4}, "Twice": {2, weir.OutcomeDelivered, 6},
		"ForEver": {100, weir.OutcomeRetry, 6}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cms := &store{items: map[int]map[string]any{1: {"slug": "news-1"}}}
			lookUps := 0
			cms.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodGet {
					if lookUps++; lookUps > c.lagging {
						return false
					}
					answerWith(200, "application/json", `{"data":[]}`)(w)
					return true
				}

				if r.Method == http.MethodPost {
					answerWith(
						400,
						"application/json",
						`{"errors":[{"message":"Value has to be unique","extensions":{"code":"RECORD_NOT_UNIQUE"}}]}`,
					)(
						w,
					)

					return true
				}

				return false
			}

			s := newSender(
				t,
				articleWithSteps(
					strings.Replace(
						upsert,
						"          price: \"{{ number('./price') }}\"\n",
						"          price: \"{{ number('./price') }}\""+rule,
						1,
					),
				),
				cms,
			)

			r := s.Send(t.Context(), newDelivery(`<article/>`))
			if r.Outcome != c.want || len(cms.requests) != c.sent || len(cms.items) != 1 {
				t.Errorf("got %+v, %d requests and %d items; want %s, %d requests and 1 item", r,
					len(cms.requests), len(cms.items), c.want, c.sent)
			}

			if r.Outcome == weir.OutcomeRetry &&
				!strings.Contains(r.Reason,
					"create: 400: the slug is taken (the steps were run 3 times, each "+
						"with this end; the look-up") {
				t.Errorf("got the reason %q, want the refusal of the third run of the steps",
					r.Reason)
			}

			seen := map[string]bool{}
			for _, key := range cms.keys {
				if seen[key] {
					t.Errorf("two requests of one attempt have the Idempotency-Key %s, want a key of its own for each",
						key)
				}
				seen[key] = true
			}
		})
	}
}

// ruleCases are the cases of TestSender_Rules.
var ruleCases = map[string]struct {
	step    string
	answer  func(http.ResponseWriter)
	want    weir.Outcome
	reason  string
	refused bool
}{
	"Done": {
		"{ delete: /items/1, on: [ { when: \"status in [404, 410]\", do: done } ] }",
		answerWith(404, "", ""),
		weir.OutcomeDelivered, "step1: 404", false,
	},
	"RejectIn200": {
		"{ post: /a, json: {}, on: [ { when: json.ok == false, do: reject, say: \"no: {{ json.why }}\" } ] }",
		answerWith(200, "", `{"ok":false,"why":"bad"}`), weir.OutcomeRejected,
		"step1: 200: no: bad", false,
	},
	"Unavailable": {
		"{ post: /a, json: {}, on: [ { when: \"body contains 'database'\", do: unavailable } ] }",
		answerWith(500, "", `<h1>database</h1>`), weir.OutcomeUnavailable, "step1: 500", false,
	},
	"RejectAt403": {
		"{ patch: /a, json: {}, on: [ { when: status == 403, do: reject } ] }",
		answerWith(403, "", `{"errors":[{"message":"You don't have permission","path":["items",1]}]}`),
		weir.OutcomeRejected, "403", false,
	},
	"Refused": {
		"{ patch: /a, json: {}, success: json.ok }",
		answerWith(403, "", `{"errors":[{"message":"no right","path":["items",1]}]}`),
		weir.OutcomeUnavailable,
		"step1: 403 Forbidden: no right (items.1)", true,
	},
	"Success": {
		"{ patch: /a, json: {}, success: json?.data?.id != nil }", answerWith(204, "", ``),
		weir.OutcomeRetry,
		"does not fit success: json?.data?.id != nil", false,
	},
	"Header": {
		"{ get: /a, success: \"headers['X-WP-Total'] == '0' and headers['x-none'] == nil\" }",
		answerWith(200, "", `[]`, "X-Wp-Total", "0"), weir.OutcomeDelivered, "", false,
	},
	"OtherStatus": {
		"{ post: /a, json: {}, expect: [201] }", answerWith(200, "", `{}`), weir.OutcomeRetry,
		"200, but this is not an expected status", false,
	},
	"AgainAt504": {
		"{ post: /a, json: {}, on: [ { when: status == 504, do: again } ] }",
		answerWith(504, "", ``),
		weir.OutcomeRetry, "504", false,
	},
	"GraphQLError": {
		"{ graphql: 'mutation { a }' }",
		answerWith(200, "", `{"data":null,"errors":[{"message":"no such template","path":["createItem"]}]}`),
		weir.OutcomeRetry, "step1: 200: no such template (createItem)", false,
	},
	"GraphQLAuth": {
		"{ graphql: 'query { a }' }",
		answerWith(200, "", `{"errors":[{"message":"sign in","extensions":{"code":"UNAUTHENTICATED"}}]}`),
		weir.OutcomeUnavailable, "sign in", false,
	},
	"GraphQLHTML": {
		"{ graphql: 'query { a }' }", answerWith(200, "", `<html>`), weir.OutcomeUnavailable,
		"not JSON, but a page of HTML", true,
	},
	"GraphQLGood": {
		"{ graphql: 'mutation { a }' }", answerWith(200, "", `{"data":{"a":1}}`),
		weir.OutcomeDelivered, "", false,
	},
	"FaultRejects": {
		"{ post: /xmlrpc, xml: '<methodCall/>' }",
		answerWith(200, "text/xml", newFault("400", "Content, title, and excerpt are empty.")),
		weir.OutcomeRejected,
		"step1: 200: fault 400: Content, title, and excerpt are empty.", false,
	},
	"FaultRetries": {
		"{ post: /xmlrpc, xml: '<methodCall/>' }",
		answerWith(200, "text/xml", newFault("500", "no")),
		weir.OutcomeRetry,
		"step1: 200: fault 500: no", false,
	},
	"FaultOfSignIn": {
		"{ post: /xmlrpc, xml: '<methodCall/>' }",
		answerWith(200, "text/xml", newFault("403", "Incorrect username or password.")),
		weir.OutcomeUnavailable,
		"fault 403", true,
	},
	"FaultEmpty": {
		"{ post: /xmlrpc, xml: '<methodCall/>' }", answerWith(200, "text/html", ""),
		weir.OutcomeRetry,
		"the answer is empty and should be XML", false,
	},
	"CallGood": {
		"{ post: /xmlrpc, xml: '<methodCall/>' }",
		answerWith(200, "text/xml", "<methodResponse><params/></methodResponse>"),
		weir.OutcomeDelivered, "", false,
	},
	"EmptyPart": {
		"{ put: \"/items/{{ text('./absent') }}\", json: {} }", answerWith(200, "", `{}`),
		weir.OutcomeRejected,
		"must not have an empty part", false,
	},
	"ListInAField": {
		"{ post: /a, form: { t: \"{{ [[text('./title')]] }}\" } }", answerWith(200, "", `{}`),
		weir.OutcomeRejected,
		"field t: a list cannot stand in a text", false,
	},
	"NoNumber": {
		"{ post: /a, json: { n: \"{{ number('./title') }}\" } }", answerWith(200, "", `{}`),
		weir.OutcomeRejected,
		"not a number", false,
	},
}

func TestSender_Rules(t *testing.T) {
	t.Parallel()
	for name, c := range ruleCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSender(
				t,
				articleWithSteps("      - "+c.step+"\n"),
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w) }),
			)

			r := s.Send(t.Context(), newDelivery(`<article><title>A</title></article>`))
			if r.Outcome != c.want || !strings.Contains(r.Reason, c.reason) ||
				r.Refused != c.refused {
				t.Errorf("got %+v, want %s with %q and Refused %t", r, c.want, c.reason, c.refused)
			}
		})
	}
}

func newFault(code, text string) string {
	return `<?xml version="1.0"?><methodResponse><fault><value><struct><member><name>faultCode</name>` +
		`<value><int>` + code +
		`</int></value></member><member><name>faultString</name><value><string>` + text +
		`</string></value></member></struct></value></fault></methodResponse>`
}

// The message of a contract without steps is sent to delivery.url beside the steps of another
// contract.
func TestSender_WithoutSteps(t *testing.T) {
	t.Parallel()
	var got string
	cms := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.Path + " " + string(body)
		http.Error(w, "no", http.StatusUnprocessableEntity)
	})

	s := newSender(t, articleWithSteps("      - get: /a\n"), cms,
		func(c *steps.Config) { c.Method = http.MethodPatch })
	d := newDelivery("<a/>")
	d.Message.Contract = "other"
	r := s.Send(t.Context(), d)
	if want := "PATCH / <a/>"; got != want {
		t.Errorf("got the request %q, want %q", got, want)
	}

	if want := "422 Unprocessable Entity: no"; r.Reason != want || r.Steps != nil {
		t.Errorf("got the reason %q and the steps %v, want %q and no steps", r.Reason,
			r.Steps, want)
	}
}

func TestSender_HidesSecrets(t *testing.T) {
	t.Parallel()
	text := "delivery: { headers: { Authorization: Bearer s3cret-token } }\n" + articleWithSteps(
		"      - { post: /a, json: { key: \"${KEY}\" } }\n",
	)
	s := newSender(t, text, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answerWith(400, "text/plain", r.Header.Get("Authorization")+string(body)+"dynamic")(w)
	}), func(c *steps.Config) { c.Secrets = func() []string { return []string{"dynamic"} } })

	r := s.Send(t.Context(), newDelivery("<a/>"))
	if r.Outcome != weir.OutcomeRejected || !strings.Contains(r.Body, "key") {
		t.Fatalf("got %+v, want Outcome rejected and \"key\" in Body", r)
	}

	for _, secret := range []string{"s3cret-token", "value-of-KEY", "dynamic"} {
		if strings.Contains(fmt.Sprintf("%+v", r), secret) {
			t.Errorf("got %+v, want it without %s", r, secret)
		}
	}
}
