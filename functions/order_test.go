// Package functions_test holds the folders of functions to the host's rules.
package functions_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// trigger is the first binding of a function.json.
type trigger struct {
	Type    string   `json:"type"`
	Methods []string `json:"methods"`
	Route   string   `json:"route"`
}

// TestRoutes_CatchAllsComeLast: the host tries functions in the order of their names and
// takes the first that matches, so a route that takes every path shadows those after it.
func TestRoutes_CatchAllsComeLast(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*/function.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("functions: %v %v", files, err)
	}
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	taken := map[string]string{} // by method: the catch-all before
	for _, file := range files {
		name := filepath.Dir(file)
		tr := read(t, file)
		for _, method := range tr.Methods {
			if by, shadowed := taken[method]; shadowed {
				t.Errorf("%s %s of %s is shadowed by %s", method, tr.Route, name, by)
			}
			if strings.HasPrefix(tr.Route, "{*") {
				taken[method] = name
			}
		}
	}
	if len(taken) != 3 {
		t.Errorf("catch-alls: %v", taken)
	}
}

func read(t *testing.T, file string) trigger {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Bindings []trigger `json:"bindings"`
	}
	if err := json.Unmarshal(data, &f); err != nil || len(f.Bindings) == 0 {
		t.Fatalf("%s: %v", file, err)
	}
	return f.Bindings[0]
}
