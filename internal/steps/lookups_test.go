package steps_test

import (
	"net/http"
	"strings"
	"testing"

	"weir/internal/weir"
)

// sharing has two contracts that use one look-up, with the rule that the look-up of another item
// rejects the message.
const sharing = `
lookups:
  find:
    get: /items?slug={{ key }}&tag={{ text('./tag') }}
    on:
      - { when: "len(json?.data ?? []) > 1", do: reject, say: "{{ key }} is there twice" }
  two:
    - { name: token, get: /token }
    - { name: again, post: "/search?token={{ token.json.id }}", reads: true, json: {} }
contracts:
  - name: article
    root: article
    key: ./@id
    steps:
      - use: find
      - { put: "/items/{{ find.json.data[0].id }}", json: {} }
  - name: delete
    root: delete
    key: ./@id
    steps:
      - use: two
      - use: find
      - { delete: "/items/{{ find.json.data[0].id }}?of={{ again.json.id }}" }
`

// The rules of a look-up hold in each contract that uses it, and each contract reads its own
// values.
func TestSender_ContractsShareALookUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		contract, found, requests string
		want                      weir.Outcome
	}{
		{"article", `{"data":[{"id":7}]}`, "GET /items?slug=%2Fnews%2F1&tag=x, PUT /items/7",
			weir.OutcomeDelivered},
		{"article", `{"data":[{"id":7},{"id":8}]}`, "GET /items?slug=%2Fnews%2F1&tag=x",
			weir.OutcomeRejected},
		{"delete", `{"data":[{"id":7}]}`,
			"GET /token, POST /search?token=5, GET /items?slug=%2Fnews%2F1&tag=x, " +
				"DELETE /items/7?of=5", weir.OutcomeDelivered},
		{"delete", `{"data":[{"id":7},{"id":8}]}`, "GET /token, POST /search?token=5, " +
			"GET /items?slug=%2Fnews%2F1&tag=x", weir.OutcomeRejected},
	} {
		var got requests
		s := newSender(t, sharing, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got.add(r.Method + " " + r.URL.RequestURI())
			body := `{"id":5}`
			if strings.HasPrefix(r.URL.Path, "/items") && r.Method == http.MethodGet {
				body = c.found
			}
			answerWith(http.StatusOK, "application/json", body)(w)
		}))

		d := newDelivery("<" + c.contract + "><tag>x</tag></" + c.contract + ">")
		d.Message.Contract = c.contract
		r := s.Send(t.Context(), d)
		if requests := strings.Join(got.list, ", "); r.Outcome != c.want || requests != c.requests {
			t.Errorf("%s, found %s: got %s (%s) after %s, want %s after %s", c.contract, c.found,
				r.Outcome, r.Reason, requests, c.want, c.requests)
		}
	}
}

// Each mistake names the line of the look-up, and is reported once, however many contracts use the
// look-up.
func TestNew_MistakesOfLookUps(t *testing.T) {
	t.Parallel()
	const contracts = `
contracts:
  - { name: article, root: article, key: ./@id, steps: [ { use: find } ] }
  - { name: delete, root: delete, key: ./@id, steps: [ { use: find }, { delete: /a } ] }
`
	for name, c := range map[string]struct{ text, want string }{
		"Unknown": {strings.Replace(contracts, "use: find", "use: fnid", 1) +
			"lookups: { find: { get: /a } }\n",
			`[3:65] contracts[0].steps[0].use: there is no look-up "fnid" under lookups; did you mean find?`},
		"Unused": {contracts + "lookups:\n  find: { get: /a }\n  other: { get: /b }\n",
			"[7:3] lookups.other: no contract uses this look-up; write - use: other in its steps"},
		"Writes": {contracts + "lookups:\n  find: { post: /a, json: {} }\n",
			"[6:9] lookups.find: a look-up only reads: write get, head, a query of graphql, or post with reads: true"},
		"Expression": {contracts + "lookups:\n  find: { get: \"/a?of={{ kye }}\" }\n",
			"[6:26] lookups.find.get: kye is not known here; did you mean key?"},
		"Rule": {contracts + "lookups:\n  find: { get: /a, on: [ { when: status == 404, do: stop } ] }\n",
			"[6:53] lookups.find.on[0].do: \"stop\" is not something to do"},
		"NotAStep": {contracts + "lookups:\n  find: /a\n",
			"[6:9] lookups.find: a step must be a mapping"},
		"NotAMapping": {contracts + "lookups: [ { get: /a } ]\n",
			"[5:10] lookups: it must be a mapping of names"},
		"Name": {strings.ReplaceAll(contracts, "use: find", "use: find-it") +
			"lookups: { find-it: { get: /a } }\n",
			`"find-it" is not a name that expressions can use`},
		"NoName": {contracts + "lookups:\n  find:\n    - get: /a\n",
			"[7:7] lookups.find[0]: a step of a look-up with several steps needs a name"},
		"Nested": {contracts + "lookups:\n  find: { use: other }\n  other: { get: /a }\n",
			"[6:11] lookups.find.use: a look-up cannot use another one"},
		"Beside": {strings.Replace(contracts, "use: find", "use: find, when: key != ''", 1) +
			"lookups: { find: " + "{ get: /a } }\n",
			"[3:71] contracts[0].steps[0].when: when cannot stand beside use; write it under lookups, in the " +
				"step find"},
		"Twice": {strings.Replace(contracts, "{ use: find }", "{ use: find }, { use: find }", 1) +
			"lookups: { find: { get: /a } }\n",
			"[3:80] contracts[0].steps[1].use: find is the name of an earlier step, too"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := compileSteps(t, c.text, "http://cms.example")
			if err == nil || strings.Count(err.Error(), c.want) != 1 {
				t.Errorf("got the error %v, want it once with %s", err, c.want)
			}
		})
	}
}
