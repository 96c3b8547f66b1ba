package repository_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unguardedFolders have code that runs in no process that delivers messages: commands at a user's
// terminal, which may end by a panic, and helpers of tests.
var unguardedFolders = []string{"internal/cli", "internal/testkit", "internal/storage/storagetest",
	"internal/simulation", "internal/panics"}

// harmlessCalls have the names of the functions that a goroutine without a guard may call. Only
// their misuse panics.
var harmlessCalls = []string{"close", "cancel", "stopWork", "Wait", "Store", "Now", "CloseDeadline"}

// A panic of a goroutine ends the process, which delivers messages of all lanes. So each goroutine
// begins with a guard of internal/panics.
func TestGoroutinesAreGuarded(t *testing.T) {
	t.Parallel()
	found := 0
	for _, dir := range []string{"functions", "handler", "internal"} {
		root := filepath.Join("..", "..")
		err := filepath.WalkDir(filepath.Join(root, dir),
			func(path string, d fs.DirEntry, err error) error {
				if err != nil || !d.IsDir() {
					return err
				}

				inner, err := filepath.Rel(root, path)
				if err != nil || slices.Contains(unguardedFolders, filepath.ToSlash(inner)) {
					return filepath.SkipDir
				}

				found += checkGoroutines(t, path)

				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}

	if found < 50 {
		t.Errorf("got %d goroutines, want 50 at least", found)
	}
}

// checkGoroutines checks the goroutines of a folder, and returns their number.
func checkGoroutines(t *testing.T, dir string) (found int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}

	set, bodies := token.NewFileSet(), map[string][]*ast.BlockStmt{}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}

		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}

		files = append(files, file)

		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				bodies[f.Name.Name] = append(bodies[f.Name.Name], f.Body)
			}
		}
	}

	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			started := startedFunction(n)
			if started == nil {
				return true
			}

			found++
			if !isGuarded(started, bodies) {
				t.Errorf("%s: the goroutine has no guard of internal/panics", set.Position(n.Pos()))
			}

			return true
		})
	}

	return found
}

// startedFunction returns the function that a node starts in another goroutine, or nil. These nodes
// start one: a go statement, a call of a method Go (of a WaitGroup or an errgroup.Group), and a
// call of AfterFunc.
func startedFunction(n ast.Node) ast.Expr {
	switch n := n.(type) {
	case *ast.GoStmt:
		return n.Call.Fun
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if ok && len(n.Args) > 0 && (f.Sel.Name == "Go" || f.Sel.Name == "AfterFunc") {
			return n.Args[len(n.Args)-1]
		}
	}

	return nil
}

// isGuarded reports whether a function catches its panics, or calls only harmless functions. The
// parameter bodies has the functions of the package by name.
func isGuarded(f ast.Expr, bodies map[string][]*ast.BlockStmt) bool {
	switch f := f.(type) {
	case *ast.FuncLit:
		return hasGuard(f.Body) || isHarmless(f.Body, bodies)
	case *ast.CallExpr: // a function that returns the function to start
		return isPanicsCall(f)
	case *ast.Ident:
		return isGuardedName(f.Name, bodies)
	case *ast.SelectorExpr:
		return isGuardedName(f.Sel.Name, bodies)
	}

	return false
}

// isGuardedName reports whether a name stands for a harmless function, or only for guarded
// functions of the package: several types can have a method of the name.
func isGuardedName(name string, bodies map[string][]*ast.BlockStmt) bool {
	if slices.Contains(harmlessCalls, name) {
		return true
	}

	for _, body := range bodies[name] {
		if !hasGuard(body) && !isHarmless(body, nil) {
			return false
		}
	}

	return len(bodies[name]) > 0
}

// hasGuard reports whether a function calls a function of internal/panics.
func hasGuard(body *ast.BlockStmt) bool {
	has := false
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && isPanicsCall(call) {
			has = true
		}
		return !has
	})

	return has
}

// isHarmless reports whether a function calls only harmless functions and guarded ones of its
// package.
func isHarmless(body *ast.BlockStmt, bodies map[string][]*ast.BlockStmt) bool {
	harmless := true
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}

		name := ""
		switch f := call.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
		}

		harmless = harmless && isGuardedName(name, bodies)

		return harmless
	})

	return harmless
}

func isPanicsCall(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := f.X.(*ast.Ident)
	return ok && pkg.Name == "panics"
}
