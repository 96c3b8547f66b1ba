package contract_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"weir/internal/contract"
	"weir/internal/weir"
)

// splitKey is the inverse of contract.JoinKey for keys of several parts, as docs/settings.md
// describes it for receivers.
func splitKey(key string) []string {
	var part strings.Builder
	var parts []string
	for i := 0; i < len(key); i++ {
		switch {
		case key[i] == '\\':
			i++
			part.WriteByte(key[i])
		case key[i] == '|':
			parts = append(parts, part.String())
			part.Reset()
		default:
			part.WriteByte(key[i])
		}
	}

	return append(parts, part.String())
}

// drawParts returns a list of parts that have many separators and escapes.
func drawParts(r *rand.Rand, count int) []string {
	letters := []rune(`||\\aé`)
	parts := make([]string, count)
	for i := range parts {
		for range 1 + r.IntN(4) {
			parts[i] += string(letters[r.IntN(len(letters))])
		}
	}

	return parts
}

// The parts of a key come back from the key. So two lists of parts with the same key are equal.
func TestJoinKey_CanBeSplit(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	partsOf := map[string][]string{}
	for range 50_000 {
		parts := drawParts(r, 2+r.IntN(2))
		key := contract.JoinKey(parts)
		if got := splitKey(key); !slices.Equal(got, parts) {
			t.Fatalf("the parts of %q: got %q, want %q", key, got, parts)
		}

		if other, known := partsOf[key]; known && !slices.Equal(other, parts) {
			t.Fatalf("%q and %q both have the key %q, want two keys", parts, other, key)
		}

		partsOf[key] = parts
	}
}

// A single part is the key as it is, so the keys of contracts with one path never change.
func TestJoinKey_OnePart(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		if parts := drawParts(r, 1); contract.JoinKey(parts) != parts[0] {
			t.Fatalf("got the key %q, want %q", contract.JoinKey(parts), parts[0])
		}
	}
}

func newPageSet(t *testing.T, key ...string) *contract.Set {
	t.Helper()
	s, err := contract.New([]contract.Definition{{Name: "page", Root: "page", Key: key}},
		contract.Limits{MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSet_Accept_KeyOfSeveralPaths(t *testing.T) {
	t.Parallel()
	s := newPageSet(t, "./@slug", "./@lang")
	long := strings.Repeat("x", 1021)
	for _, c := range []struct{ slug, lang, want string }{
		{"about", "en", "about|en"},
		{" about ", "\ten", "about|en"},
		{"a|b", "en", `a\|b|en`},
		{"a", "b|en", `a|b\|en`},
		{`a\`, "en", `a\\|en`},
		{"a", `\|`, `a|\\\|`},
		{long, "en", long + "|en"},
	} {
		m, err := s.Accept(t.Context(), "",
			fmt.Appendf(nil, "<page slug='%s' lang='%s'/>", c.slug, c.lang))
		if err != nil || m.Key != c.want {
			t.Errorf("slug %.20q, lang %q: got the key %.30q, %v, want %.30q", c.slug, c.lang,
				m.Key, err, c.want)
		}
	}
}

// A refusal names the part, so that the upstream can find its mistake.
func TestSet_Accept_RefusesParts(t *testing.T) {
	t.Parallel()
	s := newPageSet(t, "./@slug", "./lang/text")
	for body, want := range map[string]weir.Problem{
		"<page slug='a'/>": {Path: "./lang/text", Rule: "required",
			Message: "the part ./lang/text of the ordering key is missing"},
		"<page slug='a'><lang><text> </text></lang></page>": {Path: "./lang/text", Rule: "required",
			Message: "the part ./lang/text of the ordering key is missing"},
		"<page><lang><text>en</text></lang></page>": {Path: "./@slug", Rule: "required",
			Message: "the part ./@slug of the ordering key is missing"},
		"<page slug='a'><lang><text>en</text><text>de</text></lang></page>": {Path: "./lang/text",
			Rule:    "one",
			Message: "the part ./lang/text of the ordering key has 2 different values and must have one"},
		"<page slug='a'><lang><text>e\u202en</text></lang></page>": {Path: "./lang/text",
			Rule: "printable",
			Message: "the part ./lang/text of the ordering key has characters that change the direction of text, " +
				"or separate lines"},
		"<page slug='" + strings.Repeat("x", 1022) + "'><lang><text>en</text></lang></page>": {
			Path: "./@slug|./lang/text", Rule: "max=1024",
			Message: "the ordering key has 1025 bytes and may have 1024, with all parts and the | between them"},
		// An escape counts, too.
		"<page slug='" + strings.Repeat("|", 511) + "'><lang><text>en</text></lang></page>": {
			Path: "./@slug|./lang/text", Rule: "max=1024",
			Message: "the ordering key has 1025 bytes and may have 1024, with all parts and the | between them"},
	} {
		m, err := s.Accept(t.Context(), "", []byte(body))
		var refused *weir.Error
		if !errors.As(err, &refused) || refused.Kind != weir.Invalid || len(refused.Problems) != 1 {
			t.Errorf("%.60s: got the key %q, %v, want a refusal with one problem", body, m.Key, err)
			continue
		}

		got := refused.Problems[0]
		if got.Line != 1 || got.Column < 1 {
			t.Errorf("%.60s: got line %d, column %d; want a place in line 1", body, got.Line,
				got.Column)
		}

		if got.Line, got.Column = 0, 0; got != want {
			t.Errorf("%.60s: got %+v, want %+v", body, got, want)
		}
	}

	checked, err := s.Check(t.Context(), "", []byte("<page>\n  <lang/>\n</page>"))
	if err != nil || len(checked.Problems) != 2 || checked.Problems[0].Line != 1 ||
		checked.Problems[1].Line != 2 {
		t.Errorf("got %+v, %v, want a problem of ./@slug in line 1 and one of ./lang/text in line 2", checked, err)
	}
}

func TestNew_RefusesKeyPaths(t *testing.T) {
	t.Parallel()
	nine := contract.KeyPaths{"./@a", "./@b", "./@c", "./@d", "./@e", "./@f", "./@g",
		"./@h", "./@i"}
	for _, c := range []struct {
		key    contract.KeyPaths
		redact []string
		want   string
	}{
		{contract.KeyPaths{}, nil, "key has 0 paths and must have 1 to 8"},
		{nine, nil, "key has 9 paths and must have 1 to 8"},
		{contract.KeyPaths{"./@a", ""}, nil, "key[1]: path is missing"},
		{contract.KeyPaths{"./@a", "./["}, nil,
			`key[1]: path "./[": brackets or quotes do not match`},
		{contract.KeyPaths{"./@a", "./@b", "./@a"}, nil, `key[2]: path "./@a" is listed twice`},
		{contract.KeyPaths{"./@a", "/b"}, nil, `key[1]: path "/b" starts at the document`},
		{contract.KeyPaths{"./@a", "./b/c"}, []string{"./b"},
			"redact[0]: path \"./b\" covers the path of key[1]"},
	} {
		_, err := contract.New(
			[]contract.Definition{{Name: "a", Root: "a", Key: c.key, Redact: c.redact}},
			contract.Limits{MaxBody: 100})
		if err == nil || !strings.HasPrefix(err.Error(), `contracts[0] "a": `+c.want) {
			t.Errorf("key %q: got %v, want %q", c.key, err, c.want)
		}
	}
}

// A redacted path that selects a part only in a message is found when the message arrives.
func TestSet_Accept_NoPartIsRedacted(t *testing.T) {
	t.Parallel()
	s, err := contract.New([]contract.Definition{{Name: "a", Root: "a", Key: contract.KeyPaths{"./@a", "./b"},
		Redact: []string{"./*"}}}, contract.Limits{MaxBody: 100})
	if err != nil {
		t.Fatal(err)
	}

	_, err = s.Accept(t.Context(), "", []byte("<a a='1'><b>2</b></a>"))
	var refused *weir.Error
	if !errors.As(err, &refused) || len(refused.Problems) != 1 ||
		refused.Problems[0].Path != "./b" {
		t.Errorf("got %v, want a problem of ./b", err)
	}
}

func TestKeyPaths_UnmarshalYAML(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]contract.KeyPaths{
		"key: ./@a": {"./@a"}, "key: [./@a]": {"./@a"},
		"key: [./@a, \"./b[@c='d']\"]": {"./@a", "./b[@c='d']"},
		"key:\n  - ./a\n  - ./b":       {"./a", "./b"}, `key: ""`: nil, "name: a": nil, "key:": nil,
	} {
		var d contract.Definition
		if err := yaml.Unmarshal([]byte(text), &d); err != nil || !slices.Equal(d.Key, want) ||
			(d.Key == nil) != (want == nil) {
			t.Errorf("%s: got %#v, %v, want %#v", text, d.Key, err, want)
		}
	}

	var d contract.Definition
	if err := yaml.Unmarshal([]byte("key: []"), &d); err != nil || d.Key == nil || len(d.Key) > 0 {
		t.Errorf("got %#v, %v, want an empty list", d.Key, err)
	}

	if err := yaml.Unmarshal([]byte("key: { a: b }"), &d); err == nil {
		t.Errorf("a mapping: got the paths %q, want an error", d.Key)
	}
}
