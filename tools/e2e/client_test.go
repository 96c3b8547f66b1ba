package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// seenByClient is what each client prints: it posts a message and waits for it, posts it again,
// gets a typed problem, reads the status, lists, validates, sends a batch, and makes a schedule.
func seenByClient(name string) []string {
	return []string{"posted /" + name + " delivered", "repeated true", "problem 422",
		"status delivered 1", "listed 1 article", "valid true", "batch xml", "schedule " + name}
}

// TestClients_TypeScript generates clients from openapi.yaml with two public generators. The strict
// compiler must accept the programs in tools/openapi, which use these clients, and the compiled
// programs must work with Weir. make clients does the same with generators for Go.
func TestClients_TypeScript(t *testing.T) {
	tool, document := openapiFolder(t)
	packages := filepath.Join(tool, "node_modules")
	if _, err := os.Stat(filepath.Join(packages, "@hey-api")); err != nil {
		t.Fatalf("this test needs the generators of clients: run make openapi (%v)", err)
	}

	dir := t.TempDir()
	for _, name := range []string{"client.ts", "hey.ts", "openapi-ts.config.mjs", "package.json",
		"tsconfig.json"} {
		writeFile(t, filepath.Join(dir, name), readFile(t, filepath.Join(tool, name)), 0o644)
	}

	if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}

	writeFile(t, filepath.Join(dir, "openapi.yaml"), readFile(t, document), 0o644)
	runNode(t, dir, "node_modules/openapi-typescript/bin/cli.js", "openapi.yaml", "-o", "weir.d.ts")
	runNode(t, dir, "node_modules/@hey-api/openapi-ts/bin/run.js", "-f", "openapi-ts.config.mjs")
	runNode(t, dir, "node_modules/typescript/bin/tsc", "-p", ".")
	s := newSystem(t, 1)
	for program, name := range map[string]string{"client.js": "client", "hey.js": "hey"} {
		checkPrinted(t, program, runNode(t, dir, program, s.weir), seenByClient(name))
	}
}

// openapiFolder returns the folder tools/openapi and the path of openapi.yaml.
func openapiFolder(t *testing.T) (tool, document string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "tools", "openapi"),
		filepath.Join(root, "internal", "openapi", "openapi.yaml")
}

func checkPrinted(t *testing.T, program, printed string, want []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%s: got %d lines, want %d:\n%s", program, len(lines), len(want), printed)
	}

	for i := range want {
		if lines[i] != want[i] {
			t.Errorf("%s: got the line %q, want %q", program, lines[i], want[i])
		}
	}
}

// runNode runs a program with Node, and returns its standard output and standard error together.
func runNode(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return runProgram(t, dir, "node", args...)
}

func runProgram(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, output)
	}

	return string(output)
}
