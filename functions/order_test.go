// Package functions_test holds the folders of functions to the host's rules.
package functions_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/internal/openapi"
	"weir/internal/openapi/openapitest"
)

// trigger is the first binding of a function.json.
type trigger struct {
	Type      string   `json:"type"`
	AuthLevel string   `json:"authLevel"`
	Methods   []string `json:"methods"`
	Route     string   `json:"route"`
}

// TestRoutes_CatchAllsComeLast: the host tries functions in the order of their names and
// takes the first that matches, so a route that takes every path shadows those after it.
func TestRoutes_CatchAllsComeLast(t *testing.T) {
	t.Parallel()
	taken := map[string]string{} // by method: the catch-all before
	for _, file := range inOrder(t) {
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

// TestRoutes_AsDescribed has the host's choice of a function made for each operation of the
// API: it must be the one whose key the document names.
func TestRoutes_AsDescribed(t *testing.T) {
	t.Parallel()
	document, err := openapitest.Read(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}
	for _, operation := range document.Operations() {
		method, path, _ := strings.Cut(operation, " ")
		described, keyless := document.Function(operation)
		chosen, tr := choose(t, method, strings.TrimPrefix(path, "/api/"))
		if chosen != described || keyless != (tr.AuthLevel == "anonymous") {
			t.Errorf("%s goes to %q (%s), and is described as of %q, without key: %t", operation, chosen, tr.AuthLevel, described, keyless)
		}
	}
}

// choose gives the first function that takes a request.
func choose(t *testing.T, method, path string) (string, trigger) {
	t.Helper()
	for _, file := range inOrder(t) {
		if tr := read(t, file); slices.Contains(tr.Methods, strings.ToLower(method)) && takes(tr.Route, path) {
			return filepath.Dir(file), tr
		}
	}
	return "", trigger{}
}

// takes says whether a route matches: {x} stands for one segment, {*x} for all that follow.
func takes(route, path string) bool {
	pattern, segments := strings.Split(route, "/"), strings.Split(path, "/")
	for i, part := range pattern {
		switch {
		case strings.HasPrefix(part, "{*"):
			return true
		case i >= len(segments), part != segments[i] && !strings.HasPrefix(part, "{"):
			return false
		}
	}
	return len(pattern) == len(segments)
}

// inOrder gives the functions in the order in which the host tries them.
func inOrder(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*/function.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("functions: %v %v", files, err)
	}
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return files
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
