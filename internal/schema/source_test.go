package schema_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// writers lists the packages whose source has keys and columns of rows as literal strings.
var writers = []string{"../lane", "../lane/rows", "../recur", "../replay", "../history", "../audit",
	"../batch", "../upstream", "../limiter"}

var (
	rowPrefix  = regexp.MustCompile(`^(![a-z_]+|[a-z]_)$`)
	columnName = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
)

// TestSchema_HasEveryKeyAndColumn checks that each key and column in the source of writers is in
// the golden file. If the test fails for a new key or column, extend useEachFeature so that the new
// key or column is written.
func TestSchema_HasEveryKeyAndColumn(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}

	known := string(text)
	keys, columns := namesOfSource(t)
	if len(keys) < 15 || len(columns) < 80 {
		t.Errorf("got %d keys and %d columns in the source, want more: are they written in another way?",
			len(keys), len(columns))
	}

	for key := range keys {
		if !strings.Contains(known, " | "+key) {
			t.Errorf("the source has rows %s…, and the run writes none: add a step to it", key)
		}
	}

	for column := range columns {
		if !strings.Contains(known, "\n\t"+column+" ") {
			t.Errorf("the source has a column %s, and the run does not write it: add a step to it",
				column)
		}
	}
}

// namesOfSource returns the row keys, or their prefixes, and the columns in the source of writers.
func namesOfSource(t *testing.T) (keys, columns map[string]bool) {
	t.Helper()
	keys, columns = map[string]bool{}, map[string]bool{}
	for _, dir := range writers {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("files of %s: got %d, %v, want more than 0 files and no error", dir,
				len(files), err)
		}

		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}

			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}

			ast.Inspect(file, func(n ast.Node) bool {
				if text, ok := literalText(n); ok && rowPrefix.MatchString(text) {
					keys[text] = true
				}

				if text, ok := literalText(columnOf(n)); ok && columnName.MatchString(text) {
					columns[text] = true
				}
				return true
			})
		}
	}

	return keys, columns
}

// columnOf returns the part of n that can be the name of a column, or nil. A name can be a key in a
// map literal, the index of a map, or the value of a typed constant. Package rows has a typed
// constant for each column.
func columnOf(n ast.Node) ast.Node {
	switch n := n.(type) {
	case *ast.ValueSpec:
		if n.Type != nil && len(n.Values) == 1 {
			return n.Values[0]
		}

	case *ast.KeyValueExpr:
		return n.Key
	case *ast.IndexExpr:
		return n.Index
	}

	return nil
}

func literalText(n ast.Node) (string, bool) {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
