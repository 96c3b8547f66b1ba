package steps_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/steps"
	"weir/internal/weir"
)

// requests records the requests that a CMS gets.
type requests struct {
	mu   sync.Mutex
	list []string
	at   []time.Time
}

func (r *requests) add(request string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list, r.at = append(r.list, request), append(r.at, time.Now())
}

// The CMS sends the status of a write and a part of the body, and works on until the timeout. The
// lane must wait for the settle time, whether or not another step follows.
func TestSender_AnswerCutByTheTimeoutSettles(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]string{"LastStep": "",
		"AStepFollows": "      - { post: /publish, json: {} }\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSender(t, articleWithSteps("      - { name: save, post: /items, json: {} }\n"+
				next), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusCreated)
				fmt.Fprint(w, "begun, ")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}), func(c *steps.Config) { c.Timeout = 200 * time.Millisecond })
			if r := s.Send(t.Context(), newDelivery("<article id='1'/>")); !r.Unanswered {
				t.Errorf("got %+v, want it Unanswered", r)
			}
		})
	}
}

// A rule takes a timeout of a proxy for success. The next write waits until the CMS no longer works
// on the first one; a look-up does not.
func TestSender_WriteWaitsForAnUnansweredOne(t *testing.T) {
	t.Parallel()
	const settle = 300 * time.Millisecond
	var got requests
	s := newSender(t, articleWithSteps(
		"      - { post: /items, json: {}, on: [ { when: status == 504, do: ok } ] }\n"+
			"      - { get: /items }\n      - { post: /publish, json: {} }\n"),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got.add(r.Method + " " + r.URL.Path)
			if len(got.list) == 1 {
				w.WriteHeader(http.StatusGatewayTimeout)
			}
		}), func(c *steps.Config) { c.Settle = settle })

	r := s.Send(t.Context(), newDelivery("<article id='1'/>"))
	if want := "POST /items, GET /items, POST /publish"; strings.Join(got.list, ", ") != want ||
		r.Outcome != weir.OutcomeDelivered || r.Unanswered {
		t.Fatalf("got %s and %+v, want %s, delivered", strings.Join(got.list, ", "), r, want)
	}

	if waited := got.at[2].Sub(got.at[0]); waited < settle {
		t.Errorf("the second write came %s after the first one, want at least %s", waited, settle)
	}
}

// If the attempt ends before the CMS is done with such a write, the lane settles.
func TestSender_UnansweredWriteAtTheEndOfTheAttempt(t *testing.T) {
	t.Parallel()
	s := newSender(t, articleWithSteps("      - { post: /items, json: {}, on: [ { when: status == 504, do: ok } ] }\n"+
		"      - { get: /items, when: 1 == 1 }\n      - { post: /publish, json: {} }\n"),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusGatewayTimeout)
			}
		}), func(c *steps.Config) { c.Timeout, c.Settle = 200*time.Millisecond, time.Minute })
	if r := s.Send(t.Context(), newDelivery("<article id='1'/>")); r.Outcome != weir.OutcomeRetry ||
		!r.Unanswered {
		t.Errorf("got %+v, want a retry that is Unanswered", r)
	}
}

// Ids beyond an int64 keep their digits, wherever they come from and stand.
func TestSender_LargeNumbersKeepTheirDigits(t *testing.T) {
	t.Parallel()
	const id = "12345678901234567890"
	var got requests
	s := newSender(t, articleWithSteps("      - { name: find, get: /items }\n"+
		"      - { put: \"/items/{{ find.json.id }}\", json: { ref: \"{{ find.json.id }}\", own: "+
		"\"{{ number('./no') }}\", small: \"{{ find.json.small }}\", price: \"{{ find.json.price }}\" } }\n"),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := new(strings.Builder)
			_, _ = fmt.Fprint(body, r.Method, " ", r.URL.Path, " ")
			content := make([]byte, 1000)
			n, _ := r.Body.Read(content)
			got.add(body.String() + string(content[:n]))
			fmt.Fprint(w, `{"id":`+id+`,"small":9223372036854775807,"price":1.25}`)
		}))

	r := s.Send(t.Context(), newDelivery("<article id='1'><no>+00"+id+"</no></article>"))
	if r.Outcome != weir.OutcomeDelivered || len(got.list) != 2 {
		t.Fatalf("got %+v and the requests %q, want two, delivered", r, got.list)
	}

	for _, want := range []string{"PUT /items/" + id + " ", `"ref":` + id, `"own":` + id,
		`"small":9223372036854775807`, `"price":1.25`} {
		if !strings.Contains(got.list[1], want) {
			t.Errorf("got the request %q, want %q in it", got.list[1], want)
		}
	}
}

// CMSs send white space before the XML declaration by mistake. An answer that is no XML has a
// reason with line and cause, and counts as a refusal: perhaps the CMS answers so to this message
// only.
func TestSender_XMLAnswers(t *testing.T) {
	t.Parallel()
	const good = "<?xml version='1.0'?><a><id>7</id></a>"
	for name, c := range map[string]struct {
		kind, body string
		want       weir.Outcome
		reason     string
	}{
		"Plain":             {"text/xml", good, weir.OutcomeDelivered, ""},
		"LineBreaks":        {"text/xml", "\r\n\n " + good, weir.OutcomeDelivered, ""},
		"ByteOrderMark":     {"text/xml", "\xEF\xBB\xBF" + good, weir.OutcomeDelivered, ""},
		"LineBreaksAndMark": {"text/xml", "\n\xEF\xBB\xBF\n" + good, weir.OutcomeDelivered, ""},
		"CharsetOfTheHeader": {"text/xml; charset=windows-1252",
			"<a><id>7</id><t>\xfc\x93</t></a>", weir.OutcomeDelivered, ""},
		"CharsetOfTheHeader, DeclarationWithoutOne": {"text/xml; charset=windows-1251",
			"<?xml version='1.0'?><a><id>7</id><t>\xcf\xf0</t></a>", weir.OutcomeDelivered, ""},
		"WrongCharsetOfTheHeader": {"text/xml; charset=windows-1251",
			"<?xml version='1.0' encoding='ISO-8859-1'?><a><id>7</id><t>\xfc</t></a>",
			weir.OutcomeDelivered, ""},
		"UTF16OfTheHeader": {"text/xml; charset=utf-16le",
			"<\x00a\x00>\x00<\x00i\x00d\x00>\x007\x00<\x00/\x00i\x00d\x00>\x00<\x00/\x00a\x00>\x00",
			weir.OutcomeDelivered, ""},
		"ISO2022JPOfTheHeader": {"text/xml; charset=iso-2022-jp",
			"<a><id>7</id><t>\x1b$B9A\x1b(B</t></a>\x1b(B", weir.OutcomeDelivered, ""},
		"InvalidInEach": {"text/xml; charset=windows-1253", "<a><id>7</id><t>\xd2</t></a>",
			weir.OutcomeUnavailable, "not XML: line 1, column 17: the body is not valid UTF-8"},
		"CharsetOfTheHeading": {"text/xml",
			"<?xml version='1.0' encoding='ISO-8859-1'?><a><id>7</id><t>\xfc</t></a>",
			weir.OutcomeDelivered, ""},
		"Doctype": {"text/xml", "<!DOCTYPE a SYSTEM 'a.dtd'>\n<a><id>7</id></a>",
			weir.OutcomeDelivered, ""},
		"InternalSubset": {"text/xml", "<!DOCTYPE a [<!ENTITY b '7'>]>\n<a><id>&b;</id></a>",
			weir.OutcomeUnavailable,
			"find: 200, but the answer is not XML: line 1, column 1: the document type declaration has an internal subset"},
		"Entity": {"text/xml", "<a>\n<id>&laquo;</id></a>", weir.OutcomeUnavailable,
			"not XML: line 2, column"},
		"Broken": {"text/xml", "<a><id>7</a>", weir.OutcomeUnavailable, "not XML: line 1, column"},
		"Page": {"text/html", "<html><body><br></body></html>", weir.OutcomeUnavailable,
			"not XML, but a page of HTML"},
	} {
		s := newSender(t, articleWithSteps("      - { name: find, get: /items, success: xml('/a/id') == '7' }\n"),
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answerWith(200, c.kind, c.body)(w) }))
		r := s.Send(t.Context(), newDelivery("<article id='1'/>"))
		if r.Outcome != c.want || !strings.Contains(r.Reason, c.reason) ||
			r.Refused != (c.want == weir.OutcomeUnavailable) {
			t.Errorf("%s: got %s because of %q, refused %v; want %s because of %q, refused if unavailable", name, r.Outcome,
				r.Reason, r.Refused, c.want, c.reason)
		}
	}
}

// Expressions read an answer in its charset.
func TestSender_AnswersAreDecodedByTheirCharset(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ kind, body, success string }{
		"JSON": {"application/json; charset=iso-8859-1", "{\"name\":\"Stra\xdfe\"}",
			"json.name == 'Straße'"},
		"Text": {"text/plain; charset=windows-1252", "\x93Stra\xdfe\x94", "body == '“Straße”'"},
	} {
		s := newSender(t, articleWithSteps("      - { put: /a, success: \""+c.success+"\" }\n"),
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answerWith(200, c.kind, c.body)(w) }))
		if r := s.Send(t.Context(), newDelivery("<article id='1'/>")); r.Outcome !=
			weir.OutcomeDelivered {
			t.Errorf("%s: got %+v, want delivered", name, r)
		}
	}
}

// The reason of a request after which the chain begins again is cut with a mark at its end.
func TestSender_RecordMarksACutReason(t *testing.T) {
	t.Parallel()
	s := newSender(t, articleWithSteps("      - { post: /a, json: {} }\n"),
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answerWith(409, "text/plain", strings.Repeat("long ", 100))(w)
		}))

	r := s.Send(t.Context(), newDelivery("<article id='1'/>"))
	if len(r.Steps) == 0 || !strings.HasSuffix(r.Steps[0].Reason, "…") {
		t.Errorf("got the records %+v, want a reason that ends in an ellipsis", r.Steps)
	}
}

// Over HTTP/2 the client refuses headers that are larger than the CMS accepts, and over HTTP/1.1
// the CMS answers 431. In both cases the message is rejected.
func TestSender_HeadersOverTheLimit(t *testing.T) {
	t.Parallel()
	for _, isHTTP2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		server.Config.MaxHeaderBytes = 16 << 10
		server.EnableHTTP2 = isHTTP2
		server.StartTLS()
		t.Cleanup(server.Close)
		s, err := compileSteps(t,
			articleWithSteps("      - { put: \"/items?title={{ text('./title') }}\" }\n"),
			server.URL,
			func(c *steps.Config) { c.Transport = server.Client().Transport })
		if err != nil {
			t.Fatal(err)
		}

		if r := s.Send(t.Context(), newDelivery("<article id='1'><title>short</title></article>")); r.Outcome !=
			weir.OutcomeDelivered {
			t.Fatalf("HTTP/2 %v: got %+v, want delivered", isHTTP2, r)
		}

		long := "<article id='1'><title>" + strings.Repeat("long ", 5000) + "</title></article>"
		if r := s.Send(t.Context(), newDelivery(long)); r.Outcome != weir.OutcomeRejected {
			t.Errorf("HTTP/2 %v: got %s because of %q, want rejected", isHTTP2, r.Outcome, r.Reason)
		}
	}
}
