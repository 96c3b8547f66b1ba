package contract

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// listLibraryTags returns the tags in the source of the validator.
func listLibraryTags(t *testing.T) (tags []string) {
	t.Helper()
	const library = "github.com/go-playground/validator/v10"
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", library).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}

	source := filepath.Join(strings.TrimSpace(string(dir)), "baked_in.go")
	file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
	if err != nil {
		t.Fatal(err)
	}

	ast.Inspect(file, func(n ast.Node) bool {
		values, isSpec := n.(*ast.ValueSpec)
		if !isSpec && n != nil {
			_, isFunction := n.(*ast.FuncDecl)
			return !isFunction
		}

		if !isSpec || !slices.Contains([]string{"bakedInAliases", "bakedInValidators"},
			values.Names[0].Name) {
			return false
		}

		for _, element := range values.Values[0].(*ast.CompositeLit).Elts {
			key := element.(*ast.KeyValueExpr).Key.(*ast.BasicLit)
			tag, err := strconv.Unquote(key.Value)
			if err != nil {
				t.Fatal(err)
			}
			tags = append(tags, tag)
		}

		return false
	})

	return tags
}

// A release of the library that adds a tag must not add a rule: the author of this list decides.
func TestValueTags_AreThoseOfTheLibraryThatLookAtOneValue(t *testing.T) {
	t.Parallel()
	library := listLibraryTags(t)
	if len(library) < 150 {
		t.Fatalf("got %d tags of the library, want 150 at least", len(library))
	}

	for _, tag := range library {
		isRefused := slices.Contains(ioTags, tag) || needsOtherFields(tag) ||
			slices.Contains(integerTags, tag)
		if isAllowed := slices.Contains(valueTags, tag); isAllowed == isRefused {
			t.Errorf("%s: got allowed %v and refused %v, want one of them: "+
				"put the tag into valueTags, ioTags, structTags or integerTags", tag, isAllowed, isRefused)
		}
	}

	for _, tag := range valueTags {
		if tag != "omitempty" && !slices.Contains(library, tag) {
			t.Errorf("the library does not have the tag %s: remove it from valueTags", tag)
		}
	}
}

// parameters are the parameters of the tags that need one.
var parameters = map[string]string{"len": "3", "min": "1", "max": "9", "eq": "x", "ne": "x",
	"lt": "9", "lte": "9", "gt": "1", "gte": "1", "eq_ignore_case": "x", "ne_ignore_case": "x",
	"oneof": "a b", "oneofci": "a b", "noneof": "a b", "noneofci": "a b", "contains": "x",
	"containsany": "x", "containsrune": "x", "excludes": "\u2020", "excludesall": "\u2020",
	"excludesrune": "\u2020", "startswith": "x", "endswith": "x", "startsnotwith": "x",
	"endsnotwith": "x", "datetime": "2006", "postcode_iso3166_alpha2": "DE",
	"mimetype": "text/*"}

// The verdict about the name of a file must be the same if the file exists and if it does not: a
// tag whose verdict differs has looked at the file.
func TestValueTags_LookAtNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	there, missing := filepath.Join(dir, "a.txt"), filepath.Join(dir, "b.txt")
	if err := os.WriteFile(there, []byte("a text"), 0o600); err != nil {
		t.Fatal(err)
	}

	differs := func(tag string) bool {
		if parameter := parameters[tag]; parameter != "" {
			tag += "=" + parameter
		}
		ofThere, err := findBrokenTag(there, tag)
		if err != nil {
			t.Errorf("%s: got the error %v, want none", tag, err)
		}
		ofMissing, _ := findBrokenTag(missing, tag)
		return ofThere != ofMissing
	}

	for _, tag := range valueTags {
		if differs(tag) {
			t.Errorf("%s: got another verdict for a file that exists, want the same", tag)
		}
	}

	for _, tag := range []string{"file", "mimetype"} {
		if !differs(tag) {
			t.Errorf("%s: got the same verdict for a file that exists, want another", tag)
		}
	}
}

func TestValueTags_AreInTheDocument(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}

	_, text, found := strings.Cut(string(document), "<!-- rules -->")
	text, _, isClosed := strings.Cut(text, "<!-- /rules -->")
	if !found || !isClosed {
		t.Fatal("docs/settings.md has no list of rules between its marks")
	}

	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("`, |\n", r) })
	for _, tag := range valueTags {
		if !slices.Contains(words, tag) {
			t.Errorf("docs/settings.md does not list the rule %s", tag)
		}
	}
}
