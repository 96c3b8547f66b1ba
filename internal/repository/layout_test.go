package repository_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// longestWithoutBlank is the number of lines from which a function needs a blank line between its
	// steps. Functions of fewer than fewestSteps statements, such as a switch, have no steps.
	longestWithoutBlank = 15
	fewestSteps         = 4
	// widest is the width of a line, with four columns for a tab. A quoted text or an address can be
	// wider, so up to mostWide of a hundred lines are.
	widest   = 100
	mostWide = 1
)

// A reader sees the steps of a function, and no line leaves the screen.
func TestLayout(t *testing.T) {
	t.Parallel()
	all, wide := 0, 0
	for _, path := range listProductFiles(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		all += len(lines)
		for _, line := range lines {
			if utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")) > widest {
				wide++
			}
		}
		checkSteps(t, path, text, lines)
	}

	if wide*100 > mostWide*all {
		t.Errorf("got %d of %d lines over %d columns, want %d %% at most", wide, all, widest, mostWide)
	}
}

// listProductFiles returns the Go files of the program, without tests.
func listProductFiles(t *testing.T) (paths []string) {
	t.Helper()
	for _, folder := range []string{"functions", "handler", "internal"} {
		root := filepath.Join("..", "..", folder)
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// checkSteps reports the functions of a file that need a blank line.
func checkSteps(t *testing.T, path string, text []byte, lines []string) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}

	for _, d := range file.Decls {
		f, isFunction := d.(*ast.FuncDecl)
		if !isFunction || f.Body == nil || len(f.Body.List) < fewestSteps {
			continue
		}
		first, last := fset.Position(f.Body.Lbrace).Line, fset.Position(f.Body.Rbrace).Line
		body := lines[first : last-1]
		hasBlank := false
		for _, line := range body {
			hasBlank = hasBlank || strings.TrimSpace(line) == ""
		}
		if len(body) > longestWithoutBlank && !hasBlank {
			t.Errorf("%s: %s has %d lines and no blank line between its steps", path, f.Name.Name, len(body))
		}
	}
}
