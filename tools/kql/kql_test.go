// Package kql checks the queries of Application Insights that the repository publishes, with the
// reference parser of the query language.
package kql

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

type query struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

type fault struct {
	Name    string `json:"name"`
	Code    string `json:"code"`
	Message string `json:"message"`
	At      string `json:"at"`
}

// Each query of an alert rule and of the documents is one that Application Insights takes: it
// parses, and it has no other column than its tables. A rule with a wrong query fails at each
// evaluation, and raises no alert.
func TestQueries(t *testing.T) {
	t.Parallel()
	queries := append(queriesOfRules(t), queriesOfDocuments(t)...)
	if len(queries) < 9 {
		t.Fatalf("got %d queries, want 9 at least", len(queries))
	}

	for _, f := range check(t, queries) {
		t.Errorf("%s: %s %s at %q", f.Name, f.Code, f.Message, f.At)
	}
}

// The parser refuses what Application Insights would refuse.
func TestCheck_FindsFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, code string }{
		"AKeyword":     {"traces | summarize last = max(timestamp)", "KS228"},
		"ATableAbsent": {"trace | take 1", "KS204"},
		"AColumn":      {`traces | where mesage == "x"`, "KS142"},
		"Syntax":       {"traces | where", "KS006"},
	} {
		found := check(t, []query{{name, c.text}})
		if len(found) == 0 || found[0].Code != c.code {
			t.Errorf("%s: got %v, want %s", name, found, c.code)
		}
	}
}

// check returns the faults that the parser finds.
func check(t *testing.T, queries []query) (found []fault) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("node_modules", "@kusto")); err != nil {
		t.Fatalf("this test needs the parser of queries: run make kql (%v)", err)
	}

	input, err := json.Marshal(queries)
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), "node", "check.mjs")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}

	if err := json.Unmarshal(output, &found); err != nil {
		t.Fatalf("%v: %s", err, output)
	}

	return found
}

var ruleQuery = regexp.MustCompile(
	`(?s)name: '([a-z-]+)'\n(?:[^\n]*\n){1,5}?\s+query: '''\n(.*?)'''`)

// queriesOfRules returns the queries of the alert rules in infra.
func queriesOfRules(t *testing.T) (queries []query) {
	t.Helper()
	text := readText(t, "infra/modules/alerts.bicep")
	for _, m := range ruleQuery.FindAllStringSubmatch(text, -1) {
		queries = append(queries, query{m[1], m[2]})
	}

	if n := strings.Count(text, "query: '''"); n != len(queries) {
		t.Fatalf("got %d queries of alerts.bicep, want %d", len(queries), n)
	}

	return queries
}

// queriesOfDocuments returns the blocks of code in docs that begin with the name of a table and go
// on with a pipe.
func queriesOfDocuments(t *testing.T) (queries []query) {
	t.Helper()
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}

	table := regexp.MustCompile(`^(traces|customMetrics|requests|dependencies|exceptions)$`)
	for _, path := range paths {
		lines := strings.Split(readText(t, "docs/"+filepath.Base(path)), "\n")
		for i := 0; i < len(lines); i++ {
			if !table.MatchString(strings.TrimSpace(lines[i])) {
				continue
			}

			first := i
			for i+1 < len(lines) && strings.HasPrefix(strings.TrimSpace(lines[i+1]), "|") {
				i++
			}

			if i > first {
				queries = append(queries,
					query{filepath.Base(path), strings.Join(lines[first:i+1], "\n")})
			}
		}
	}

	return queries
}

func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
