package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTryExpect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	run := func(want int, says string, args ...string) {
		t.Helper()
		code, stdout, stderr := runTried(t, nil, nil, append([]string{"--expect", dir}, args...)...)
		if all := stdout + stderr; code != want || !strings.Contains(all, says) ||
			says == "" && all != "" {
			t.Errorf("got exit code %d and\n%s%s\nwant %d and %q", code, stdout, stderr, want, says)
		}
	}

	run(exitUsage, "matches no file")
	write("a.xml", triedArticle)
	run(exitFailed, "a.requests.txt is missing; write it with --update")
	run(exitOK, "a.requests.txt: written", "--update")
	run(exitOK, "")
	write("a.new.answers.yaml", "find: { status: 200, json: [] }\ncreate: { status: 201 }\n")
	write("a.there.answers.yaml", "find: { status: 200, json: [1] }\n")
	run(exitFailed, "a.new.requests.txt is missing")
	run(exitFailed, "a.requests.txt belongs to no message and no answers; delete it", "--update")
	if err := os.Remove(filepath.Join(dir, "a.requests.txt")); err != nil {
		t.Fatal(err)
	}

	run(exitOK, "")
	write("a.xml", strings.Replace(triedArticle, "A &amp; B", "C", 1))
	run(exitFailed, "-     \"title\": \"A & B\"\n+     \"title\": \"C\"\n")
	write("a.xml", "<article/>")
	run(exitFailed, "+refused: line 1, column 1: the ordering key is missing\n")
	write("b.xml", triedArticle)
	run(exitOK, "a.there.requests.txt: written", filepath.Join(dir, "a.xml"), "--update")
	run(exitFailed, "b.requests.txt is missing")
}

// The messages of each recipe must make exactly the requests in the recipe's files.
func TestTryExpect_Recipes(t *testing.T) {
	t.Parallel()
	recipes, err := filepath.Glob("../../recipes/*/weir.yaml")
	if err != nil || len(recipes) < 3 {
		t.Fatalf("got the recipes %q (%v), want 3 at least", recipes, err)
	}

	for _, file := range recipes {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			absolute, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}

			s, stdout, stderr := newTestConsole(func(name string) string {
				return map[string]string{"WEIR_CONFIG": absolute}[name]
			})
			code := s.runCommand(t.Context(),
				[]string{"try", "--expect", filepath.Join(dir, "messages")})
			if code != exitOK {
				t.Errorf("got exit code %d, want 0; if the difference is wanted, run "+
					"weir try --expect %s/messages --update\n%s%s",
					code, dir, stdout, stderr)
			}
		})
	}
}
