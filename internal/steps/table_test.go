package steps_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"weir/internal/signin"
	"weir/internal/steps"
	"weir/internal/weir"
)

// The tables of docs/recipes.md are the specification of verdicts. These tests read them, so that
// the document, the steps and the single request cannot differ.

// readTable returns the cells of the table in docs/recipes.md whose head begins so, without the
// head.
func readTable(t *testing.T, head string) [][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}

	_, rest, found := strings.Cut(string(text), "\n"+head)
	if !found {
		t.Fatalf("docs/recipes.md has no table %q", head)
	}

	var rows [][]string
	for i, line := range strings.Split(rest, "\n") {
		if i < 2 {
			continue // the rest of the head, and the line below it
		}
		if !strings.HasPrefix(line, "|") {
			break
		}

		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}

		rows = append(rows, cells)
	}

	return rows
}

// answerOf is a transport that answers each request in the same way.
type answerOf func(req *http.Request) (*http.Response, error)

func (f answerOf) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
	}
	return f(req)
}

func newAnswer(status int, contentType, body string, headers ...string) answerOf {
	header := http.Header{"Content-Type": {contentType}}
	for i := 0; i < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}

	return func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: header, Request: req,
			Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}, nil
	}
}

// newCutAnswer returns an answer whose connection is lost behind a part of its body.
func newCutAnswer(status int, body string) answerOf {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := newAnswer(status, "text/plain", "")(req)
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(body),
			iotest.ErrReader(io.ErrUnexpectedEOF)))
		return resp, err
	}
}

// sendStep makes an attempt whose steps get the answers of the transport.
func sendSteps(t *testing.T, list string, transport http.RoundTripper) weir.Result {
	t.Helper()
	return newTableSender(t, list).send(t, transport)
}

// tableSender runs the same steps with other answers.
type tableSender struct {
	sender *steps.Sender
	next   http.RoundTripper
}

func newTableSender(t *testing.T, list string) *tableSender {
	t.Helper()
	s := &tableSender{}
	var err error
	s.sender, err = compileSteps(t, articleWithSteps(list), "http://cms.example",
		func(c *steps.Config) {
			c.Transport = answerOf(func(req *http.Request) (*http.Response,
				error) {
				return s.next.RoundTrip(req)
			})
		})
	if err != nil {
		t.Fatal(err)
	}

	return s
}

func (s *tableSender) send(t *testing.T, transport http.RoundTripper) weir.Result {
	t.Helper()
	s.next = transport
	return s.sender.Send(t.Context(), newDelivery("<article/>"))
}

// sendSingle makes an attempt by a single request.
func sendSingle(t *testing.T, transport http.RoundTripper,
	change ...func(*steps.Config)) weir.Result {
	t.Helper()
	cfg := steps.Config{URL: "http://cms.example/{key}", Method: http.MethodPut,
		Timeout: time.Second, Now: time.Now, Transport: transport}
	for _, f := range change {
		f(&cfg)
	}

	client, err := steps.New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	return client.Send(t.Context(), newDelivery("<article/>"))
}

// verdictOf returns the word of the tables for a result.
func verdictOf(r weir.Result) string {
	switch {
	case len(r.Steps) == 3: // the chain has one step, and ran three times
		return "again"
	case r.Outcome == weir.OutcomeUnavailable && r.Refused:
		return "refused"
	case r.Outcome == weir.OutcomeDelivered:
		return "ok"
	}

	return string(r.Outcome)
}

var statusRange = regexp.MustCompile(`^(\d+)–(\d+)$`)

// hasStatus reports whether a cell such as "2xx", "404" or "401, 502–504" has a status.
func hasStatus(t *testing.T, cell string, status int) bool {
	t.Helper()
	for part := range strings.SplitSeq(cell, ", ") {
		if class, isClass := strings.CutSuffix(part, "xx"); isClass {
			if class == strconv.Itoa(status/100) {
				return true
			}
			continue
		}

		low, high := part, part
		if r := statusRange.FindStringSubmatch(part); r != nil {
			low, high = r[1], r[2]
		}

		from, err := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err != nil || err2 != nil {
			t.Fatalf("%q is no status", part)
		}

		if status >= from && status <= to {
			return true
		}
	}

	return false
}

// bodies has a body of each kind. The word of the table is "page", "other", or "words" for one that
// is neither a page nor empty.
var bodies = []struct{ name, kind, contentType, body string }{
	{"Page", "page", "text/html",
		"<!DOCTYPE html><html><head><title>Gateway</title></head><body>no</body></html>"},
	{"PageOfNginx", "page", "text/html",
		"<html>\r\n<head><title>404 Not Found</title></head>\r\n</html>"},
	{"PageWithoutType", "page", "", "<html><body>no</body></html>"},
	{"Empty", "empty", "", ""},
	{"EmptyHTML", "empty", "text/html", " \r\n"},
	{"Text", "words", "text/plain", "404 page not found"},
	{"JSON", "words", "application/json", `{"error":{"message":"no"}}`},
	{"JSONAsHTML", "words", "text/html", `{"error":"no"}`},
	{"Problem", "words", "application/problem+json", `{"title":"no","status":400}`},
	{"XML", "words", "application/xml", "<error>no</error>"},
}

// special are the statuses that are tested with each body. The others are tested with a page and
// with JSON.
var special = []int{100, 101, 200, 204, 206, 207, 226, 299, 302, 400, 401, 403, 404, 405, 409,
	410, 412, 413, 414, 422, 431, 451, 499, 500, 503, 524}

func TestTableOfAnswers_Statuses(t *testing.T) {
	t.Parallel()
	rows := readTable(t, "| status | body | reading step | writing step | single request |")
	find := func(status int, kind string) []string {
		for _, row := range rows {
			isOther := row[1] == "other" && kind != "page"
			if hasStatus(t, row[0], status) && (row[1] == kind || row[1] == "any" || isOther) {
				return row
			}
		}

		t.Fatalf("no row has the status %d with the body %s", status, kind)
		return nil
	}

	reading := map[string]*tableSender{}
	for _, step := range []string{"get: /a", "head: /a", "post: /a, json: {}, reads: true"} {
		reading[step] = newTableSender(t, "      - { "+step+" }\n")
	}

	writing := map[string]*tableSender{}
	for _, step := range []string{"post: /a, json: {}", "put: /a", "patch: /a, json: {}",
		"delete: /a"} {
		writing[step] = newTableSender(t, "      - { "+step+" }\n")
	}

	used := map[string]bool{}
	for status := 100; status <= 599; status++ {
		for i, b := range bodies {
			if i > 0 && b.name != "JSON" && !slices.Contains(special, status) {
				continue
			}
			if b.name == "Problem" && status/100 == 2 { // this is a row of the other table
				continue
			}

			row := find(status, b.kind)
			used[strings.Join(row, "|")] = true
			answer := newAnswer(status, b.contentType, b.body)
			check := func(kind, want string, r weir.Result) {
				if got := verdictOf(r); got != want {
					t.Errorf("%d %s to %s: got %s because of %q, want %s", status, b.name, kind,
						got, r.Reason, want)
				}
			}

			for step, s := range reading {
				check(step, row[2], s.send(t, answer))
			}

			for step, s := range writing {
				check(step, row[3], s.send(t, answer))
			}

			check("a single request", row[4], sendSingle(t, answer))
		}
	}

	for _, row := range rows {
		if !used[strings.Join(row, "|")] {
			t.Errorf("no answer fits the row %q first", row)
		}
	}
}

// otherAnswer produces the answers of a row of the second table.
type otherAnswer struct {
	reading, writing []string // steps; each must have the verdict of its column
	single           bool     // the row has a verdict for a single request
	answers          []answerOf
	change           func(*steps.Config)
}

func graphQLAnswer(errors ...string) answerOf {
	list := make([]string, len(errors))
	for i, e := range errors {
		list[i] = `{"message":"no",` + e + `}`
	}
	return newAnswer(200, "application/json",
		`{"data":{"a":null},"errors":[`+strings.Join(list, ",")+`]}`)
}

func codeOf(code string) string { return `"extensions":{"code":"` + code + `"}` }

var (
	query = []string{"graphql: 'query { a }'", "graphql: '{ a }'",
		"graphql: 'query { a }', on: [ { when: len(json.data.a.b) > 1, do: reject } ]"}
	mutation = []string{"graphql: 'mutation { a }'"}
	callRead = []string{"post: /rpc, xml: '<methodCall/>', reads: true"}
	call     = []string{"post: /rpc, xml: '<methodCall/>'"}
)

// otherAnswers has the rows of the second table by their first cell.
var otherAnswers = map[string]otherAnswer{
	"2xx: JSON, XML or text that an expression reads is empty, cut off, too large or of another kind": {
		reading: []string{"get: /a, success: json.a != nil", "get: /a, success: xml('/a') != nil",
			"post: /a, json: {}, reads: true, success: json.a != nil"},
		writing: []string{"post: /a, json: {}, success: json.a != nil",
			"put: /a, success: xml('/a') != nil"},
		answers: []answerOf{newAnswer(200, "application/json", ""),
			newAnswer(200, "application/json", `{"a":`),
			newAnswer(200, "text/html", bodies[0].body), newAnswer(201, "text/plain", "OK")},
	},
	"2xx: JSON or XML that nothing reads ends in the middle; the body is compressed unasked, or of the type " +
		"`application/problem+json` or `application/problem+xml`": {
		reading: []string{"get: /a", "get: /a, expect: [200, 404]",
			"post: /a, json: {}, reads: true"},
		writing: []string{"post: /a, json: {}", "put: /a, expect: [200]", "delete: /a"},
		single:  true,
		answers: []answerOf{newAnswer(200, "application/json", `{"id":`),
			newAnswer(200, "text/html", `[{"id":7},`),
			newAnswer(200, "", "{}\n{\"id\":\"7"),
			newAnswer(200, "text/xml", "<?xml version='1.0'?><a><id>7</id>"),
			newAnswer(200, "text/xml", "<?xml version='1.0'?><a><id"),
			newAnswer(200, "application/json", "{"),
			newAnswer(200, "application/problem+json", `{"title":"no"}`),
			newAnswer(200, "Application/Problem+XML; charset=utf-8", `<problem/>`),
			newAnswer(200, "text/plain", "\x1b\x00", "Content-Encoding", "br"),
			newAnswer(200, "text/plain", "x", "Content-Encoding", "gzip, deflate")},
	},
	"2xx: the connection is lost in the middle of the answer": {
		reading: []string{"get: /a"}, writing: []string{"post: /a, json: {}", "delete: /a"},
		single:  true,
		answers: []answerOf{newCutAnswer(200, "saved"), newCutAnswer(201, "")},
	},
	"an expected 404 or 5xx is a page that no expression reads": {
		reading: []string{"get: /a, expect: [200, 404]",
			"get: /a, expect: [200, 404], success: status == 404 " + "or json.a == 1"},
		writing: []string{"delete: /a, expect: [200, 404]",
			"put: /a, expect: [404], success: status == 404"},
		answers: []answerOf{newAnswer(404, "text/html", bodies[0].body)},
	},
	"`success` does not hold or cannot be evaluated": {
		reading: []string{"get: /a, success: json.a == 2", "get: /a, success: json.a.b.c == 2"},
		writing: []string{"put: /a, success: json.a == 2", "put: /a, success: json.a.b.c == 2"},
		single:  true, answers: []answerOf{newAnswer(200, "application/json", `{"a":1}`)},
		change: func(c *steps.Config) {
			c.SuccessRules = map[string]*regexp.Regexp{"article": regexp.MustCompile(`"a":2`)}
		},
	},
	"2xx that `expect` does not name": {
		reading: []string{"get: /a, expect: [204]"}, writing: []string{"put: /a, expect: [201]"},
		answers: []answerOf{newAnswer(200, "application/json", `{}`)},
	},
	"a later expression fails with the answer": {
		reading: []string{"name: a, get: /a }\n      - { put: \"/{{ a.json.b.c }}\""},
		writing: []string{"name: a, put: /a }\n      - { put: \"/{{ a.json.b.c }}\""},
		answers: []answerOf{newAnswer(200, "application/json", `{}`)},
	},
	"GraphQL: an error says that the session has ended": {
		reading: query, writing: mutation,
		answers: []answerOf{graphQLAnswer(codeOf("UNAUTHENTICATED")),
			graphQLAnswer(codeOf("BAD_USER_INPUT"), codeOf("TOKEN_EXPIRED")),
			graphQLAnswer(codeOf("invalid-jwt")),
			graphQLAnswer(`"extensions":{"statusCode":401}`)},
	},
	"GraphQL: an error says that the CMS is overloaded": {
		reading: query, writing: mutation, answers: []answerOf{graphQLAnswer(codeOf("THROTTLED")),
			graphQLAnswer(codeOf("BAD_USER_INPUT"), codeOf("RATE_LIMITED")),
			graphQLAnswer(`"type":"RATE_LIMITED"`)},
	},
	"GraphQL: an error says that a right is missing": {
		reading: query, writing: mutation, answers: []answerOf{graphQLAnswer(codeOf("FORBIDDEN")),
			graphQLAnswer(codeOf("KS_ACCESS_DENIED")), graphQLAnswer(codeOf("access-denied")),
			graphQLAnswer(codeOf("BAD_USER_INPUT"), codeOf("FORBIDDEN")),
			graphQLAnswer(`"extensions":{"errorType":"PERMISSION_DENIED"}`),
			graphQLAnswer(`"extensions":{"name":"Forbidden","statusCode":403}`)},
	},
	"GraphQL: each error says that the input is wrong": {
		reading: query, writing: mutation,
		answers: []answerOf{graphQLAnswer(codeOf("BAD_USER_INPUT")),
			graphQLAnswer(codeOf("KS_VALIDATION_FAILURE"), codeOf("GRAPHQL_VALIDATION_FAILED")),
			graphQLAnswer(`"extensions":{"classification":"ValidationError"}`),
			graphQLAnswer(`"extensions":{"category":"validation"}`),
			graphQLAnswer(`"extensions":{"statusCode":400}`),
			newAnswer(400, "application/json",
				`{"errors":[{"message":"no",`+codeOf("BAD_USER_INPUT")+`}]}`)},
	},
	"GraphQL: an error of another code, or without one": {
		reading: query, writing: mutation,
		answers: []answerOf{graphQLAnswer(codeOf("KS_PRISMA_ERROR")),
			graphQLAnswer(`"path":["a"]`), graphQLAnswer(codeOf("INTERNAL_SERVER_ERROR")),
			graphQLAnswer(codeOf("BAD_USER_INPUT"), codeOf("KS_PRISMA_ERROR")),
			graphQLAnswer(`"extensions":{"code":"INTERNAL_SERVER_ERROR","name":"ValidationError"}`),
			graphQLAnswer(codeOf("GRAPHQL_PARSE_FAILED")),
			graphQLAnswer(codeOf("RECORD_NOT_UNIQUE")),
			newAnswer(200, "application/json", `{"errors":["no"]}`),
			newAnswer(400, "application/json", `{"errors":[{"message":"no"}]}`),
			newAnswer(500, "application/json", `{"errors":[{"message":"no"}]}`)},
	},
	"GraphQL: neither errors nor data": {
		reading: query, writing: mutation,
		answers: []answerOf{newAnswer(200, "application/json", `{}`),
			newAnswer(200, "application/json", `{"data":null,"errors":[]}`),
			newAnswer(200, "application/json", `[]`)},
	},
	"XML-RPC: a fault with a code from 400 to 599": {
		reading: callRead, writing: call,
		answers: []answerOf{newAnswer(200, "text/xml", newFault("400", "no"))},
	},
	"XML-RPC: a fault with another code, or without one": {
		reading: callRead, writing: call,
		answers: []answerOf{newAnswer(200, "text/xml", newFault("-32500", "no")),
			newAnswer(200, "text/xml", newFault("1", "no")),
			newAnswer(200, "text/xml", newFault("", "no")),
			newAnswer(200, "text/xml",
				"<methodResponse><fault><value>no</value></fault></methodResponse>")},
	},
	"XML-RPC: no methodResponse, or one with neither params nor a fault": {
		reading: callRead, writing: call,
		answers: []answerOf{newAnswer(200, "text/xml", "<html><body/></html>"),
			newAnswer(200, "text/xml", "<methodResponse/>"),
			newAnswer(200, "text/xml", "<methodResponse><a/></methodResponse>")},
	},
	"no connection, or the sign-in fails": {
		reading: []string{"get: /a"}, writing: []string{"put: /a"}, single: true,
		answers: []answerOf{
			func(*http.Request) (*http.Response, error) {
				return nil,
					errors.New("connection refused")
			},
			func(*http.Request) (*http.Response, error) {
				return nil,
					&signin.Error{Err: errors.New("no")}
			},
		},
	},
	"the connection is lost, or the answer does not come in time": {
		reading: []string{"get: /a", "post: /a, json: {}, reads: true"},
		writing: []string{"put: /a"}, single: true,
		answers: []answerOf{loseConnection},
	},
	"the request cannot be built or sent": {
		reading: []string{"get: \"/a?b={{ text('./none') }}\""},
		writing: []string{"put: \"/{{ text('./none') }}\""},
		single:  true,
		answers: []answerOf{func(*http.Request) (*http.Response, error) {
			return nil,
				errors.New("invalid header")
		}},
	},
	"the header `Weir-Retry: never`": {
		reading: []string{"get: /a"}, writing: []string{"put: /a"}, single: true,
		answers: []answerOf{func(req *http.Request) (*http.Response, error) {
			resp, err := newAnswer(500, "text/plain", "no")(req)
			resp.Header.Set("Weir-Retry", "never")
			return resp, err
		}},
	},
}

func TestTableOfAnswers_Others(t *testing.T) {
	t.Parallel()
	rows := readTable(t, "| answer | reading step | writing step | single request |")
	if len(rows) != len(otherAnswers) {
		t.Errorf("got %d rows in docs/recipes.md, want the %d of the test", len(rows),
			len(otherAnswers))
	}

	for _, row := range rows {
		c, isKnown := otherAnswers[row[0]]
		if !isKnown {
			t.Errorf("the test has no answers for the row %q", row[0])
			continue
		}

		for i, answer := range c.answers {
			check := func(kind, want string, r weir.Result) {
				if got := verdictOf(r); got != want {
					t.Errorf("%s, answer %d to %s: got %s because of %q, want %s", row[0], i, kind,
						got, r.Reason, want)
				}
			}

			for _, step := range c.reading {
				check(step, row[1], sendSteps(t, "      - { "+step+" }\n", answer))
			}

			for _, step := range c.writing {
				check(step, row[2], sendSteps(t, "      - { "+step+" }\n", answer))
			}

			var change []func(*steps.Config)
			if c.change != nil {
				change = append(change, c.change)
			}

			if c.single {
				check("a single request", row[3], sendSingle(t, answer, change...))
			} else if row[3] != "–" {
				t.Errorf("%s: got %q for a single request, want –", row[0], row[3])
			}
		}
	}
}

// loseConnection has begun to send the request when the connection is lost.
func loseConnection(req *http.Request) (*http.Response, error) {
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil {
		trace.WroteHeaders()
	}
	return nil, fmt.Errorf("read: %w", io.ErrUnexpectedEOF)
}

// A page of HTML has no verdict: no rule that reads only its status makes the message dead or
// delivered. A rule that reads the page does.
func TestSender_RulesAndPages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ step, want string }{
		{"delete: /a, on: [ { when: status == 404, do: done } ]", "refused"},
		{"put: /a, on: [ { when: status == 404, do: reject } ]", "refused"},
		{"put: /a, on: [ { when: json?.ok != true, do: reject } ]", "refused"},
		{"put: /a, on: [ { when: status == 404, do: ok } ]", "refused"},
		{"get: /a, on: [ { when: status == 404, do: reject } ]", "unavailable"},
		{"get: /a, on: [ { when: status == 404, do: refuse } ]", "refused"},
		{"put: /a, on: [ { when: status == 404, do: unavailable } ]", "unavailable"},
		{"put: /a, on: [ { when: status == 404, do: retry } ]", "retry"},
		{"put: /a, on: [ { when: status == 404, do: again } ]", "again"},
		{"delete: /a, on: [ { when: status == 404 and body contains 'Gateway', do: done } ]", "ok"},
		{"put: /a, on: [ { when: body contains 'Gateway', do: reject } ]", "rejected"},
	} {
		r := sendSteps(t, "      - { "+c.step+" }\n", newAnswer(404, "text/html", bodies[0].body))
		if got := verdictOf(r); got != c.want {
			t.Errorf("%s: got %s because of %q, want %s", c.step, got, r.Reason, c.want)
		}
	}
}
