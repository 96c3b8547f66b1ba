package main

import (
	"context"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// block is a range of code that runs as a whole.
type block struct {
	file                string // path below the root of the tree
	firstLine, lastLine int
}

// coverage has the number of statements of each executed block.
type coverage struct{ statements map[block]int }

// readCoverage reads the counters that a program wrote into the folder dir.
func readCoverage(ctx context.Context, dir string) (coverage, error) {
	text := filepath.Join(dir, "coverage.txt")
	convert := exec.CommandContext(ctx, "go", "tool", "covdata", "textfmt", "-i="+dir, "-o="+text)
	if out, err := convert.CombinedOutput(); err != nil {
		return coverage{}, fmt.Errorf("%s: %w\n%s", strings.Join(convert.Args, " "), err, out)
	}

	lines, err := os.ReadFile(text)
	if err != nil {
		return coverage{}, err
	}

	return parseCoverage(string(lines))
}

// parseCoverage reads lines such as weir/internal/lane/keys.go:12.34,15.2 3 1: a block, its
// statements, and whether it ran.
func parseCoverage(text string) (coverage, error) {
	c := coverage{statements: map[block]int{}}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "mode:") {
			continue
		}

		path, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		b := block{file: strings.TrimPrefix(path, module+"/")}
		var firstColumn, lastColumn, statements, count int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.firstLine, &firstColumn, &b.lastLine,
			&lastColumn, &statements, &count); err != nil {
			return coverage{}, fmt.Errorf("line %q: %w", line, err)
		}

		if count > 0 {
			c.statements[b] += statements
		}
	}

	return c, nil
}

// without returns the blocks of c that did not run in other.
func (c coverage) without(other coverage) coverage {
	left := coverage{statements: map[block]int{}}
	for b, statements := range c.statements {
		if _, ran := other.statements[b]; !ran {
			left.statements[b] = statements
		}
	}
	return left
}

// measure returns the rows about the way of one message.
func (c coverage) measure(t *tree) []row {
	files, functions, statements := map[string]bool{}, map[string]bool{}, 0
	packages, simple := map[string]bool{}, map[string]bool{}
	for b, n := range c.statements {
		f := t.product[b.file]
		if f == nil {
			continue
		}

		statements += n
		files[b.file], packages[f.pkg] = true, true
		declared := t.findFunction(f, b)
		if declared == nil {
			continue
		}

		name := b.file + ": " + t.nameOf(f, declared)
		functions[name] = true
		if len(declared.Body.List) == 1 {
			simple[name] = true
		}
	}

	return []row{
		{name: "files / functions of one message",
			value: fmt.Sprintf("%d / %d", len(files), len(functions)),
			names: slices.Sorted(maps.Keys(functions))},
		{name: "of these functions, those of one statement",
			value: strconv.Itoa(len(simple)), names: slices.Sorted(maps.Keys(simple))},
		{name: "packages / statements of one message",
			value: fmt.Sprintf("%d / %d", len(packages), statements),
			names: slices.Sorted(maps.Keys(packages))},
	}
}

// findFunction returns the function that has the block; nil = it is no part of a named function.
func (t *tree) findFunction(f *sourceFile, b block) *ast.FuncDecl {
	for _, d := range f.syntax.Decls {
		declared, ok := d.(*ast.FuncDecl)
		if ok && b.firstLine >= t.line(declared.Pos()) && b.firstLine <= t.line(declared.End()) {
			return declared
		}
	}
	return nil
}

// nameOf returns the name of a function, with the type of its receiver.
func (t *tree) nameOf(f *sourceFile, declared *ast.FuncDecl) string {
	if declared.Recv == nil {
		return declared.Name.Name
	}

	receiver := declared.Recv.List[0].Type
	first, last := t.fset.Position(receiver.Pos()), t.fset.Position(receiver.End())

	return f.lines[first.Line-1][first.Column-1:last.Column-1] + "." + declared.Name.Name
}
