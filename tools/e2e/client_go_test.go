//go:build clients

package e2e_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestClients_Go generates clients from openapi.yaml with oapi-codegen and ogen, and builds and
// runs the programs in tools/openapi/go, which use these clients. Both generators are large
// programs to build, so make test leaves the test out; make clients runs it.
func TestClients_Go(t *testing.T) {
	tool, document := openapiFolder(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(tool, "go"))); err != nil {
		t.Fatal(err)
	}

	// The programs have another ending in the repository, where the packages that they import do
	// not exist.
	for _, name := range []string{"oapi", "byoapi", "byogen"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	for _, name := range []string{"byoapi", "byogen"} {
		program := readFile(t, filepath.Join(dir, name+".go.txt"))
		writeFile(t, filepath.Join(dir, name, "main.go"), program, 0o644)
	}

	runProgram(t, dir, "go", "tool", "oapi-codegen", "-config", "oapi-codegen.yaml", document)
	runProgram(t, dir, "go", "tool", "ogen", "--config", "ogen.yaml", "--target", "ogen",
		"--package", "ogen", "--clean", document)
	runProgram(t, dir, "go", "build", "-o", "bin/", "./byoapi", "./byogen")
	s := newSystem(t, 1)
	for program, name := range map[string]string{"bin/byoapi": "oapi", "bin/byogen": "ogen"} {
		checkPrinted(t, program, runProgram(t, dir, filepath.Join(dir, program), s.weir),
			seenByClient(name))
	}
}
