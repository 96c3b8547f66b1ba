package main

import (
	"go/ast"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"
)

// The package that delivers, and its type for the state of a key.
const (
	drainPackage = module + "/internal/drain"
	keyStateType = "keyState"
)

// measureDrain returns the rows about the package that delivers.
func (t *tree) measureDrain() []row {
	var files []string
	for name, f := range t.product {
		if f.pkg == drainPackage {
			files = append(files, filepath.Base(name))
		}
	}

	slices.Sort(files)
	writers := t.findKeyStateWriters()

	return []row{
		{name: "files in drain", value: strconv.Itoa(len(files)), names: files},
		{name: "files that write the state of a key", value: strconv.Itoa(len(writers)),
			names: writers},
	}
}

// findKeyStateWriters returns the files that assign to a field of a key's state, its embedded
// fields included, or make a state with fields.
func (t *tree) findKeyStateWriters() []string {
	found := map[string]bool{}
	for _, p := range t.packages {
		if p.PkgPath != drainPackage || p.ForTest != "" {
			continue
		}

		for _, syntax := range p.Syntax {
			name := filepath.Base(t.fset.Position(syntax.Package).Filename)
			if strings.HasSuffix(name, "_test.go") {
				continue
			}

			ast.Inspect(syntax, func(n ast.Node) bool {
				if isKeyStateWrite(p, n) {
					found[name] = true
				}
				return true
			})
		}
	}

	return slices.Sorted(maps.Keys(found))
}

func isKeyStateWrite(p *packages.Package, n ast.Node) bool {
	switch n := n.(type) {
	case *ast.AssignStmt:
		return slices.ContainsFunc(n.Lhs, func(e ast.Expr) bool { return isKeyStateField(p, e) })
	case *ast.IncDecStmt:
		return isKeyStateField(p, n.X)
	case *ast.CompositeLit:
		return len(n.Elts) > 0 && isKeyState(p.TypesInfo.TypeOf(n))
	}

	return false
}

// isKeyStateField reports whether e is a field of a key's state, or a field of its field.
func isKeyStateField(p *packages.Package, e ast.Expr) bool {
	for {
		selector, ok := ast.Unparen(e).(*ast.SelectorExpr)
		if !ok {
			return false
		}
		if isKeyState(p.TypesInfo.TypeOf(selector.X)) {
			return true
		}

		e = selector.X
	}
}

func isKeyState(t types.Type) bool {
	if t == nil {
		return false
	}

	if pointer, ok := t.Underlying().(*types.Pointer); ok {
		t = pointer.Elem()
	}

	named, ok := t.(*types.Named)
	return ok && named.Obj().Name() == keyStateType
}
