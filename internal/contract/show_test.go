package contract_test

import (
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"weir/internal/contract"
)

func TestSet_ShownFields(t *testing.T) {
	t.Parallel()
	s, err := contract.New([]contract.Definition{{Name: "article", Root: "article", Key: contract.KeyPaths{"./@path"},
		Show: []contract.ShownField{{Name: "title", Path: "./head/title"},
			{Name: "desk", Path: "./@desk"},
			{Name: "tag", Path: "./tag"}}}}, contract.Limits{MaxBody: 10_000})
	if err != nil {
		t.Fatal(err)
	}

	for body, want := range map[string]map[string]string{
		`<article path="/a" desk="sport"><head><title> A
			title </title></head><tag></tag><tag>x</tag><tag>y</tag></article>`: {
			"title": "A title", "desk": "sport", "tag": "x"},
		`<article path="/a"><tag> </tag></article>`: nil,
	} {
		m, err := s.Accept(t.Context(), "", []byte(body))
		if err != nil || !maps.Equal(m.Shown, want) {
			t.Errorf("%s: got %v and %v, want %v", body, m.Shown, err, want)
		}
	}

	for _, long := range []string{strings.Repeat("ü", 150), strings.Repeat("x", 201),
		strings.Repeat("€", 3000)} {
		m, err := s.Accept(t.Context(), "",
			[]byte(`<article path="/a"><tag>`+long+`</tag></article>`))
		if tag := m.Shown["tag"]; err != nil || len(tag) > 200 || len(tag) < 190 ||
			!utf8.ValidString(tag) ||
			!strings.HasSuffix(tag, "…") {
			t.Errorf("a value of %d bytes became %d bytes, %q, %v; want at most 200 that end in …",
				len(long), len(tag),
				tag, err)
		}
	}
}

func TestNew_RefusesShownFields(t *testing.T) {
	t.Parallel()
	many := make([]contract.ShownField, 9)
	for i := range many {
		many[i] = contract.ShownField{Name: string(rune('a' + i)), Path: "./x"}
	}

	for want, fields := range map[string][]contract.ShownField{
		"may have 8":              many,
		"show[0]: path is":        {{Name: "a"}},
		"show[0]: name \"\" must": {{Path: "./x"}},
		"show[0]: name \"a b\"":   {{Name: "a b", Path: "./x"}},
		"show[1]: name \"a\" is":  {{Name: "a", Path: "./x"}, {Name: "a", Path: "./y"}},
		"show[0]: ":               {{Name: "a", Path: "./x["}},
	} {
		_, err := contract.New([]contract.Definition{{Name: "a", Root: "a", Show: fields}},
			contract.Limits{MaxBody: 1})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", fields, err, want)
		}
	}
}
