package steps_test

import (
	"strings"
	"testing"
)

// A look-up by the key needs a comparison of its answer with the key, if a write uses the item that
// it found.
func TestSender_WarnLookUps(t *testing.T) {
	t.Parallel()
	const update = "      - { name: update, put: \"/items/{{ find.json.data[0].id }}\", json: { ref: \"{{ key " +
		"}}\" } }\n"
	for name, c := range map[string]struct {
		steps string
		want  string // the steps that the warning names; "" = no warning
	}{
		"NotCompared": {"      - { name: find, get: \"/items?ref={{ key }}\" }\n" + update,
			"find update"},
		"ByPath": {"      - { name: find, get: \"/items?ref={{ text('./@id') }}\" }\n" +
			update, "find update"},
		"Folded": {"      - { name: find, get: \"/items?ref={{ lower(key) }}\" }\n" + update,
			"find update"},
		"ByPost": {"      - { name: find, post: /search, reads: true, json: { q: \"{{ key }}\" } }\n" + update,
			"find update"},
		"ByGraphQL": {"      - { name: find, graphql: 'query($k: ID) { item(ref: $k) { id } }', variables: { k: " +
			"\"{{ key }}\" } }\n" +
			"      - { name: update, graphql: 'mutation($i: ID) { a }', variables: { i: \"{{ " +
			"find.json.data.item.id }}\" } }\n",
			"find update"},
		"InABody": {"      - { name: find, get: \"/items?ref={{ key }}\" }\n" +
			"      - { name: update, post: /save, form: { id: \"{{ find.json.id }}\" } }\n",
			"find update"},
		"KeyWithItself": {"      - { name: find, get: \"/items?ref={{ slug(key) }}\", " +
			"on: [ { when: key != slug(key), do: reject } ] }\n" + update, "find update"},
		"OtherComparison": {"      - { name: find, get: \"/items?ref={{ key }}\", success: json.total == 1 " +
			"}\n" + update,
			"find update"},
		"Rule": {"      - { name: find, get: \"/items?ref={{ key }}\", " +
			"on: [ { when: \"any(json.data, .ref != key)\", do: reject } ] }\n" + update, ""},
		"Filter": {"      - { name: find, get: \"/items?ref={{ key }}\" }\n" +
			"      - { name: update, put: \"/items/{{ filter(find.json.data, .ref == key)[0].id }}\", json: {} " +
			"}\n", ""},
		"Success": {"      - { name: find, get: \"/items?ref={{ key }}\", success: key == json.data.ref " +
			"}\n" + update, ""},
		"ComparedPath": {"      - { name: find, get: \"/items?ref={{ key }}\", success: text('./@id') == " +
			"json.data.ref }\n" + update, ""},
		"FoldedBoth": {"      - { name: find, get: \"/items?ref={{ key }}\", success: lower(json.data.ref) == " +
			"lower(key) }\n" + update, ""},
		"Declared": {"      - { name: find, get: \"/items?ref={{ key }}\", " +
			"success: \"let k = lower(key); any(json.data, .ref == k)\" }\n" + update, ""},
		"In": {"      - { name: find, get: \"/items?ref={{ key }}\", success: \"key in map(json.data, .ref)\" " +
			"}\n" + update, ""},
		"OnTheWrite": {"      - { name: find, get: \"/items?ref={{ key }}\" }\n" +
			"      - { name: update, put: \"/items/{{ find.json.id }}\", json: {}, on: [ { when: json.ref != " +
			"key, do: reject } ] }\n", ""},
		"ChosenID": {"      - { name: find, get: \"/items/{{ uuid5('6ba7b811-9dad-11d1-80b4-00c04fd430c8', key) " +
			"}}\" }\n" +
			update, ""},
		"OtherKey": {"      - { name: find, get: \"/token?for={{ text('./site') }}\" }\n" +
			update, ""},
		"Unused": {"      - { name: find, get: \"/items?ref={{ key }}\" }\n" +
			"      - { name: update, when: find.status == 200, put: \"/items/{{ key }}\", headers: { If-Match: " +
			"\"{{ find.headers.etag }}\" }, json: {} }\n", ""},
		"NoWrite": {"      - { name: find, get: \"/items?ref={{ key }}\" }\n" +
			"      - { name: more, get: \"/items/{{ find.json.id }}\" }\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := compileSteps(t, articleWithSteps(c.steps), "http://cms.example")
			if err != nil {
				t.Fatal(err)
			}

			got := strings.Join(s.WarnLookUps("article"), "; ")
			if c.want == "" && got != "" {
				t.Errorf("got the warning %q, want none", got)
			}

			for step := range strings.FieldsSeq(c.want) {
				if !strings.Contains(got, step) || strings.Contains(got, "; article") {
					t.Errorf("got the warning %q, want one with the step %s", got, step)
				}
			}
		})
	}
}
