package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// module is the path of the module of the program.
const module = "weir"

// testSupport lists folders whose packages help tests, or consist of tests.
var testSupport = []string{"/testkit/", "/storagetest/", "/openapitest/", "/dashboardtest/",
	"/simulation/", "/schema/", "/linear/", "/tools/"}

// tree is the module of one revision, with types.
type tree struct {
	dir      string
	fset     *token.FileSet
	packages []*packages.Package
	product  map[string]*sourceFile // by path below dir
}

// sourceFile is a file of the product.
type sourceFile struct {
	name   string // path below the root of the tree
	pkg    string // import path
	syntax *ast.File
	lines  []string
}

// loadTree loads the module in the folder dir, with its tests. An error of a package of the module
// ends it: a number of half a tree would mislead.
func loadTree(ctx context.Context, dir string) (*tree, error) {
	t := &tree{dir: dir, fset: token.NewFileSet(), product: map[string]*sourceFile{}}
	cfg := &packages.Config{Context: ctx, Dir: dir, Fset: t.fset, Tests: true,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes |
			packages.NeedTypesInfo | packages.NeedImports | packages.NeedForTest}
	loaded, err := packages.Load(cfg, module+"/...")
	if err != nil {
		return nil, err
	}

	for _, p := range loaded {
		if strings.HasSuffix(p.PkgPath, ".test") {
			continue // the generated main package of a test binary
		}
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("package %s: %w", p.ID, p.Errors[0])
		}

		t.packages = append(t.packages, p)
	}

	if len(t.packages) == 0 {
		return nil, errors.New("the folder has no package of the module " + module)
	}

	return t, t.collectProduct()
}

func (t *tree) collectProduct() error {
	for _, p := range t.packages {
		if p.ForTest != "" || isTestSupport(p.PkgPath) {
			continue
		}

		for _, syntax := range p.Syntax {
			path := t.fset.Position(syntax.Package).Filename
			if strings.HasSuffix(path, "_test.go") || ast.IsGenerated(syntax) {
				continue
			}

			name, err := filepath.Rel(t.dir, path)
			if err != nil {
				return err
			}

			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}

			lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
			t.product[name] = &sourceFile{name: name, pkg: p.PkgPath, syntax: syntax, lines: lines}
		}
	}

	return nil
}

// isTestSupport reports whether the package at path helps tests, or consists of tests.
func isTestSupport(path string) bool {
	return slices.ContainsFunc(testSupport, func(folder string) bool {
		return strings.Contains(path+"/", folder)
	})
}

// isTest reports whether the declaration at pos belongs to tests.
func (t *tree) isTest(p *packages.Package, pos token.Pos) bool {
	return isTestSupport(p.PkgPath) || strings.HasSuffix(t.fset.Position(pos).Filename, "_test.go")
}

// line returns the number of the line of pos.
func (t *tree) line(pos token.Pos) int { return t.fset.Position(pos).Line }
