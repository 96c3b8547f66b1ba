package host

import (
	"maps"
	"testing"
)

func TestTemplate_Match(t *testing.T) {
	t.Parallel()
	const (
		id   = `messages/{id:regex(^[a-z0-9_-]{{1,4}}$)}`
		last = `messages/{id:regex(^[a-z]+\z)}`
		rest = `api/{*rest:regex(^([a-z]+(/[0-9]{{1,2}})?)?$)}`
	)

	none := map[string]string{}
	for _, c := range []struct {
		template, path string
		want           map[string]string // nil = no match
	}{
		{id, "/messages/a-1", map[string]string{"id": "a-1"}},
		{id, "/MESSAGES/A-1/", map[string]string{"id": "A-1"}},
		{id, "/messages/abcde", nil},
		{id, "/messages/..", nil},
		{id, `/messages/a\b`, nil},
		{id, "/messages/a%2F", nil},
		// if case is ignored, the Kelvin sign equals k
		{id, "/messages/\u212a", map[string]string{"id": "\u212a"}},
		// $ also matches before a line feed at the end
		{id, "/messages/a\n", map[string]string{"id": "a\n"}},
		{id, "/messages/a\n\n", nil},
		{last, "/messages/a\n", nil},
		{last, "/messages/a", map[string]string{"id": "a"}},
		{rest, "/api/a/12", map[string]string{"rest": "a/12"}},
		{rest, "/api/a/12/", nil}, // the value a/12/ includes the last slash
		{rest, "/api/a/123", nil},
		{rest, "/api", nil}, // without a value, the parameter does not pass its constraint
		{rest, "/api/", nil},
		{"api/{*rest}", "/api", none},
		{"api/{*rest}", "/api/a//b/", map[string]string{"rest": "a//b/"}},
		{"api/{*rest}", "/api//b", nil},
		{"a/{id:int?}", "/a", none},
		{"a/{id:int?}", "/a/x", nil},
		{"a/{x?}/{n:regex(^[0-9]+\\z)?}", "/a", none},
		{"a/{x?}/{n:regex(^[0-9]+\\z)?}", "/a/b/", map[string]string{"x": "b"}},
		{"a/{x?}/{n:regex(^[0-9]+\\z)?}", "/a/b/1", map[string]string{"x": "b", "n": "1"}},
		{"a/{x?}/{n:regex(^[0-9]+\\z)?}", "/a/b/c", nil},
		{"a/{x?}/{n:regex(^[0-9]+\\z)?}", "/a/b/1/2", nil},
		{"a/{x?}/b", "/a", nil},
		// in .NET, \d matches the digits of all scripts
		{`a/{n:regex(^\d+$)}`, "/a/٣", map[string]string{"n": "٣"}},
	} {
		parsed, err := parseTemplate(c.template)
		if err != nil {
			t.Errorf("parseTemplate(%s) = %v, want no error", c.template, err)
			continue
		}

		params, ok := parsed.matchPath(c.path)
		if ok != (c.want != nil) || ok && !maps.Equal(params, c.want) {
			t.Errorf("%s on %q: %v %t; want %v", c.template, c.path, params, ok, c.want)
		}
	}
}

func TestTemplate_Refused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"a//b", "{a}b", "{}", "{*a}/b", "{*a?}", "{a:unknown}", "{a:regex(x}",
		`{a:regex(^[a-z]{1,2}$)}`,
		`{a:regex(a(?=b))}`,
		`{a:regex(a$b)}`, `{a:regex(\bx)}`, `{a:regex([a-z-[aeiou]])}`, `{a:regex([]a])}`,
		`{a:regex((?m)a$)}`,
		`{a:regex(()}`,
	} {
		if parsed, err := parseTemplate(text); err == nil {
			t.Errorf("%s is read as %+v; want an error", text, parsed)
		}
	}
}
