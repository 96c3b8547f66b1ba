package steps_test

import (
	"strings"
	"testing"
)

// A rule that compares a field of a GraphQL answer needs a query that selects the field.
func TestSender_WarnUnselected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		query, more string // further settings of the step
		want        string // the field that the warning names; "" = no warning
	}{
		"Rule": {"query ($path: String) { item(path: $path) { id } }",
			"on: [ { when: json.data.item.path != key, do: reject } ]", "json.data.item.path"},
		"Optional": {"{ item { id } }", "success: (json?.data?.item?.path ?? key) == key",
			"json.data.item.path"},
		"Root": {"{ item { id } }", "success: json.data.page == nil", "json.data.page"},
		"List": {"{ items { id } }",
			"on: [ { when: \"any(json.data.items, .path != key)\", do: reject } ]",
			"json.data.items.path"},
		"First": {"{ items { id } }",
			"success: \"first(filter(json.data.items, .id == key))?.path == key\"",
			"json.data.items.path"},
		"Index": {"{ items { id } }", "success: \"json.data.items[0].path == key\"",
			"json.data.items.path"},
		"InArgs": {"query ($path: String) { item(where: {path: $path}) { id } }",
			"success: json.data.item.path == key", "json.data.item.path"},
		"InComment": {"{ item { id # path\\n } }", "success: json.data.item.path == key",
			"json.data.item.path"},
		"Selected": {"{ item { id path } }", "success: json.data.item.path == key", ""},
		"Alias":    {"{ item: page { id path: url } }", "success: json.data.item.path == key", ""},
		"Fragment": {"query { item { ...f } } fragment f on Item { path }",
			"success: json.data.item.path == key", ""},
		"Scalar": {"{ item { id meta } }", "success: json.data.item.meta.path == key", ""},
		"Errors": {"{ item { id } }",
			"success: \"json.errors == nil or json.errors[0].message != key\"", ""},
		"Length": {"{ items { id } }", "success: len(json.data.items) == 1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := compileSteps(t,
				articleWithSteps("      - { name: find, graphql: \""+c.query+"\", "+c.more+" }\n"+
					"      - { put: \"/{{ find.json.data.item.id }}\", when: find.json.data.item != nil, json: {} }\n"),
				"http://cms.example")
			if err != nil {
				t.Fatal(err)
			}

			var got []string
			for _, warning := range s.WarnUnselected("article") {
				if !strings.Contains(warning, "find.json.data.item") { // of the step that writes
					got = append(got, warning)
				}
			}

			text := strings.Join(got, "; ")
			if c.want == "" && text != "" || !strings.Contains(text, c.want) {
				t.Errorf("got the warning %q, want one with %q", text, c.want)
			}
		})
	}
}
