package main

import (
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxColumns is the width that a line should not exceed. A tab counts as four columns.
const maxColumns = 100

// layout counts lines.
type layout struct {
	all, code, wide         int
	bodyLines, blankInBody  int
	functions, longFunction int
}

// measureSource returns the rows about lines, and about the packages that know stored rows.
func (t *tree) measureSource() []row {
	var l layout
	for _, f := range t.product {
		l.addFile(t, f)
	}

	readers := t.findRowReaders()
	return []row{
		{name: "lines of product code without blanks and comments", value: strconv.Itoa(l.code)},
		{name: "lines, files, functions of product code",
			value: fmt.Sprintf("%d, %d, %d", l.all, len(t.product), l.functions)},
		{name: "functions over 60 lines", value: strconv.Itoa(l.longFunction)},
		{name: "blank lines per 100 lines of bodies",
			value: fmt.Sprintf("%.1f", percent(l.blankInBody, l.bodyLines))},
		{name: fmt.Sprintf("lines over %d columns", maxColumns),
			value: fmt.Sprintf("%.1f %%", percent(l.wide, l.all))},
		{name: "packages that import lane/rows outside lane/**", value: strconv.Itoa(len(readers)),
			names: readers},
	}
}

func percent(part, whole int) float64 { return 100 * float64(part) / float64(max(whole, 1)) }

func (l *layout) addFile(t *tree, f *sourceFile) {
	l.all += len(f.lines)
	l.code += countCode([]byte(strings.Join(f.lines, "\n")))
	for _, line := range f.lines {
		if columns(line) > maxColumns {
			l.wide++
		}
	}

	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if declared, ok := n.(*ast.FuncDecl); ok && declared.Body != nil {
			l.addFunction(t, f, declared)
		}
		return true
	})
}

// addFunction counts the lines between the braces. A function on one line has none.
func (l *layout) addFunction(t *tree, f *sourceFile, declared *ast.FuncDecl) {
	first, last := t.line(declared.Body.Lbrace)+1, t.line(declared.Body.Rbrace)-1
	l.functions++
	if t.line(declared.Body.Rbrace)-t.line(declared.Pos()) >= 60 {
		l.longFunction++
	}

	for number := first; number <= last; number++ {
		l.bodyLines++
		if strings.TrimSpace(f.lines[number-1]) == "" {
			l.blankInBody++
		}
	}
}

func columns(line string) int {
	return utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
}

// countCode returns how many lines have a token other than a comment.
func countCode(text []byte) int {
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)

	lines := map[int]bool{}
	for {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			return len(lines)
		}
		if kind == token.SEMICOLON && literal == "\n" {
			continue // a line feed
		}

		first := file.Line(pos)
		for number := first; number <= first+strings.Count(literal, "\n"); number++ {
			lines[number] = true
		}
	}
}

// findRowReaders returns the packages outside of internal/lane that import lane/rows.
func (t *tree) findRowReaders() []string {
	const lane = module + "/internal/lane"
	found := map[string]bool{}
	for _, f := range t.product {
		if f.pkg == lane || strings.HasPrefix(f.pkg, lane+"/") {
			continue
		}

		for _, imported := range f.syntax.Imports {
			if imported.Path.Value == strconv.Quote(lane+"/rows") {
				found[f.pkg] = true
			}
		}
	}

	return slices.Sorted(maps.Keys(found))
}
