package steps_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/internal/cms"
	"weir/internal/steps"
	"weir/internal/weir"
)

// rehearse rehearses one attempt. The first requests get the given answers: each text is a status,
// a space and a body. Later requests get no answer. rehearse returns a line for each call of a
// function of cms.Rehearsal, and the attempt's result.
func rehearse(t *testing.T, list string, answers ...string) ([]string, weir.Result) {
	t.Helper()
	sender, err := compileSteps(t, articleWithSteps(list), "http://cms.example/api")
	if err != nil {
		t.Fatal(err)
	}

	var calls []string
	record := func(format string, args ...any) {
		calls = append(calls,
			fmt.Sprintf(format, args...))
	}

	result := sender.Rehearse(t.Context(), newDelivery("<article><title>T</title></article>"),
		&cms.Rehearsal{
			Answer: func(step string, req *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(req.Body)
				record("%s: %s %s %s", step, req.Method, req.URL, body)
				if err != nil || len(answers) == 0 {
					return nil, cms.ErrNoAnswer
				}

				status, text, _ := strings.Cut(answers[0], " ")
				answers = answers[1:]
				var code int
				fmt.Sscan(status, &code)

				return &http.Response{StatusCode: code, Header: http.Header{},
						Body: io.NopCloser(strings.NewReader(text))},
					err
			},
			LeaveOut: func(step, condition string) { record("%s left out: %s", step, condition) },
			Judge:    func(step, action, _ string) { record("%s: %s", step, action) },
			Outline: func(o cms.StepOutline) {
				record("%s ahead, if %q: %s %s %s%s, %d headers", o.Step, o.Condition, o.Method,
					o.Address, o.Body, o.Problem, len(o.Header))
			},
		})

	return calls, result
}

const rehearsedSteps = `
      - { name: find, get: "/items?ref={{ key }}" }
      - { name: create, when: len(find.json) == 0, post: /items, json: { title: "{{ text('./title') }}" } }
      - { name: update, when: len(find.json) == 1, put: "/items/{{ find.json[0] }}",
          headers: { If-Match: "{{ find.headers.etag }}" },
          json: { title: "{{ text('./title') }}", n: "{{ find.json[0] }}" } }
      - { name: never, when: key == 'other', delete: /items }
      - { name: publish, post: "/publish?of={{ create?.json.id ?? find.json[0] }}", form: { k: "{{ key }}" } }
`

func TestSender_Rehearse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []string
		want    []string
		outcome weir.Outcome
	}{
		"NoAnswer": {nil, []string{
			`find: GET http://cms.example/api/items?ref=%2Fnews%2F1 `,
			`create ahead, if "len(find.json) == 0": POST http://cms.example/api/items {"title":"T"}, 8 headers`,
			`update ahead, if "len(find.json) == 1": PUT http://cms.example/api/items/{{ find.json[0] }} ` +
				`{"n":"{{ find.json[0] }}","title":"T"}, 9 headers`,
			`never left out: key == 'other'`,
			`publish ahead, if "": POST http://cms.example/api/publish?of={{ create?.json.id ?? find.json[0] }} ` +
				`k=%2Fnews%2F1, 8 headers`,
		}, weir.OutcomeRetry},
		"InTheMiddle": {[]string{`200 []`}, []string{
			`find: GET http://cms.example/api/items?ref=%2Fnews%2F1 `, `find: ok`,
			`create: POST http://cms.example/api/items {"title":"T"}`,
			`update left out: len(find.json) == 1`,
			`never left out: key == 'other'`,
			`publish ahead, if "": POST http://cms.example/api/publish?of={{ create?.json.id ?? find.json[0] }} ` +
				`k=%2Fnews%2F1, 8 headers`,
		}, weir.OutcomeRetry},
		"Whole": {[]string{`200 [7]`, `204 `, `200 `}, []string{
			`find: GET http://cms.example/api/items?ref=%2Fnews%2F1 `, `find: ok`,
			`create left out: len(find.json) == 0`,
			`update: PUT http://cms.example/api/items/7 {"n":7,"title":"T"}`, `update: ok`,
			`never left out: key == 'other'`,
			`publish: POST http://cms.example/api/publish?of=7 k=%2Fnews%2F1`, `publish: ok`,
		}, weir.OutcomeDelivered},
		"Again": {[]string{`200 [7]`, `412 `, `200 x`}, []string{
			`find: GET http://cms.example/api/items?ref=%2Fnews%2F1 `, `find: ok`,
			`create left out: len(find.json) == 0`,
			`update: PUT http://cms.example/api/items/7 {"n":7,"title":"T"}`, `update: again`,
			`find: GET http://cms.example/api/items?ref=%2Fnews%2F1 `, `find: refuse`,
		}, weir.OutcomeUnavailable},
		"Dead": {[]string{`200 [7]`, `422 no`}, []string{
			`find: GET http://cms.example/api/items?ref=%2Fnews%2F1 `, `find: ok`,
			`create left out: len(find.json) == 0`,
			`update: PUT http://cms.example/api/items/7 {"n":7,"title":"T"}`, `update: reject`,
		}, weir.OutcomeRejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls, result := rehearse(t, rehearsedSteps, c.answers...)
			if got, want := strings.Join(calls, "\n"), strings.Join(c.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}

			if name != "NoAnswer" && name != "InTheMiddle" && result.Outcome != c.outcome {
				t.Errorf("got %+v, want %s", result, c.outcome)
			}
		})
	}
}

// Within one run of a chain, the value of "remembered" does not change, even if a step learns an
// id. So a rehearsal leaves out the step "update", as a delivery does.
func TestSender_RehearseRemembered(t *testing.T) {
	t.Parallel()
	const list = `
      - { name: find, when: remembered == nil, get: /items, remember: "{{ json[0] }}" }
      - { name: update, when: remembered != nil, put: "/items/{{ remembered }}" }
`

	const want = "find: GET http://cms.example/api/items \nupdate left out: remembered != nil"
	calls, _ := rehearse(t, list)
	if got := strings.Join(calls, "\n"); got != want {
		t.Errorf("without an answer got\n%s\nwant\n%s", got, want)
	}

	calls, result := rehearse(t, list, `200 ["7"]`)
	if got := strings.Join(calls, "\n"); !strings.Contains(got, "update left out: remembered != nil") ||
		result.RememberedID != "7" {
		t.Errorf("with an answer got\n%s\nand the id %q, want update left out and the id 7", got,
			result.RememberedID)
	}
}

// A rehearsal must not make the pauses of 9s. Otherwise the step would give up before the third
// request, because of its limit of 10s.
func TestSender_RehearseWithoutPauses(t *testing.T) {
	t.Parallel()
	calls, result := rehearse(t, `
      - { name: done, get: /job, until: json.done, every: 9s, for: 10s }
`, `200 {"done":false}`, `200 {"done":false}`, `200 {"done":true}`)
	if len(calls) != 6 || result.Outcome != weir.OutcomeDelivered {
		t.Errorf("got the calls %q and %+v, want three requests without a pause, and delivered",
			calls, result)
	}
}

func TestSender_LookUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		list string
		want steps.LookUp
	}{
		"First": {"- { get: '/a?x={{ key }}' }",
			steps.LookUp{Step: "step1", NeedsMessage: true}},
		"WritesOnly": {"- { post: /a }\n      - { delete: /a }", steps.LookUp{}},
		"BehindAWrite": {"- { post: /a }\n      - { name: all, get: /a }",
			steps.LookUp{Step: "all"}},
		"AddressReadsAnAnswer": {"- { name: a, post: /a }\n      - { get: '/{{ a.json.id }}' }",
			steps.LookUp{}},
		"ConditionReadsAnAnswer": {"- { name: a, post: /a }\n      - { get: /a, when: a != nil }",
			steps.LookUp{}},
		"RuleReadsTheKey": {"- { get: /a, on: [{ when: key == 'x', do: reject }] }",
			steps.LookUp{Step: "step1", NeedsMessage: true}},
		"Query": {"- { graphql: 'query { a }' }", steps.LookUp{Step: "step1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sender, err := compileSteps(t, articleWithSteps("      "+c.list+"\n"),
				"http://cms.example/api")
			if err != nil {
				t.Fatal(err)
			}

			if got, found := sender.FindLookUp("article"); got != c.want ||
				found != (c.want.Step != "") {
				t.Errorf("got %+v, %t, want %+v", got, found, c.want)
			}
		})
	}
}
