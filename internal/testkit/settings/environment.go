package settings

import (
	"os"
	"path/filepath"
	"testing"
)

// Minimal is the text of a weir.yaml with nothing but what each needs.
const Minimal = `
delivery: { url: "http://127.0.0.1:7072/api/content" }
contracts:
  - { name: article, root: article, key: ./@path }
`

// NewEnvironment writes a weir.yaml of this text, and returns an environment that leads to the
// file. The argument "more" has further variables: a name, its value, the next name, and so on.
func NewEnvironment(t testing.TB, text string, more ...string) func(string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "weir.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	values := map[string]string{"AzureWebJobsStorage": "UseDevelopmentStorage=true",
		"FUNCTIONS_APP_ROOT_PATH": dir}
	for i := 0; i < len(more); i += 2 {
		values[more[i]] = more[i+1]
	}

	return func(name string) string { return values[name] }
}
