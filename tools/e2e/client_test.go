package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestClient_GeneratedFromTheDocument generates TypeScript types from openapi.yaml with a third-party tool. The strict
// compiler must accept tools/openapi/client.ts, which uses these types, and the compiled program must work with Weir.
func TestClient_GeneratedFromTheDocument(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(root, "tools", "openapi")
	packages, document := filepath.Join(tool, "node_modules"), filepath.Join(root, "internal", "openapi", "openapi.yaml")
	if _, err := os.Stat(filepath.Join(packages, "openapi-fetch")); err != nil {
		t.Fatalf("this test needs the generator of clients: run make openapi (%v)", err)
	}
	dir := t.TempDir()
	for _, name := range []string{"client.ts", "package.json", "tsconfig.json"} {
		writeFile(t, filepath.Join(dir, name), readFile(t, filepath.Join(tool, name)), 0o644)
	}
	if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	runNode(t, dir, "node_modules/openapi-typescript/bin/cli.js", document, "-o", "weir.d.ts")
	runNode(t, dir, "node_modules/typescript/bin/tsc", "-p", ".")
	s := newSystem(t, 1)
	printed := runNode(t, dir, "client.js", s.weir)
	want := []string{"posted /client 1", "repeated 200", "stage delivered", "refused 422 ", "delivered 1",
		"paused a generated client", "resumed 0"}
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	if len(lines) != len(want) {
		t.Fatalf("got %d lines from the client, want %d:\n%s", len(lines), len(want), printed)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("got %q from the client, want %q", lines[i], want[i])
		}
	}
}

// runNode runs a program with Node, and returns its standard output and standard error together.
func runNode(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("node %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}
