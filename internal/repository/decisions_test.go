package repository_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// decision is what the table of docs/decisions.md, or a section of the file, says about a decision.
type decision struct{ number, date, status, title string }

var (
	decisionRow = regexp.MustCompile(
		`(?m)^\| \[(\d+)\]\(#(\d+)\) \| (\S+) \| (.+?) \| (.+) \|$`)
	decisionSection = regexp.MustCompile(`(?m)^### (\d+)\n\n` +
		`\*([\d-]+)(?:, changed [\d-]+)? · (.+?)\*\n\n\*\*([^*]+?)\.?\*\*`)
	decisionHeading = regexp.MustCompile(`(?m)^### `)
	decisionStatus  = regexp.MustCompile(`^(in force|replaced by \[(\d+)\]\(#(\d+)\))$`)
	decisionLink    = regexp.MustCompile(`decisions\.md#([\w-]+)`)
)

// Each decision has a row of the table and a section, with the next number, and both say the same
// about it.
func TestDecisions_AreNumberedInOrder(t *testing.T) {
	t.Parallel()
	text := readDecisions(t)
	var rows, sections []decision
	for _, m := range decisionRow.FindAllStringSubmatch(text, -1) {
		rows = append(rows, decision{m[1], m[3], m[4], m[5]})
		if m[1] != m[2] {
			t.Errorf("the row of %s links to #%s, want #%s", m[1], m[2], m[1])
		}
	}

	for _, m := range decisionSection.FindAllStringSubmatch(text, -1) {
		sections = append(sections,
			decision{m[1], m[2], m[3], strings.Join(strings.Fields(m[4]), " ")})
	}

	if headings := len(decisionHeading.FindAllString(text, -1)); len(rows) < 100 ||
		len(rows) != len(sections) ||
		len(rows) != headings {
		t.Fatalf("got %d rows, %d sections and %d headings, want as many of each, and 100 at least",
			len(rows), len(sections), headings)
	}

	for i, row := range rows {
		if sections[i] != row {
			t.Errorf("got the section %q, want it as its row %q", sections[i], row)
		}

		if got, want := row.number, strconv.Itoa(i+1); got != want {
			t.Errorf("got the number %s, want %s", got, want)
		}

		status := decisionStatus.FindStringSubmatch(row.status)
		if status == nil || status[2] != status[3] {
			t.Errorf("%s: got the status %q, want \"in force\", or \"replaced by\" with a link",
				row.number, row.status)
		}
	}
}

// Each link to a decision, in any text of the repository, leads to one.
func TestDecisions_LinksLeadToOne(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, m := range decisionSection.FindAllStringSubmatch(readDecisions(t), -1) {
		known[m[1]] = true
	}

	for _, dir := range []string{"docs", "functions", "handler", "infra", "internal", "deploy",
		"recipes"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir),
			func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || filepath.Ext(path) == ".png" {
					return err
				}

				text, err := os.ReadFile(path)
				pattern := decisionLink
				if strings.HasSuffix(path, filepath.Join("docs", "decisions.md")) {
					pattern = regexp.MustCompile(`\]\(#([\w-]+)\)`)
				}

				for _, m := range pattern.FindAllSubmatch(text, -1) {
					if number := string(m[1]); !known[number] {
						t.Errorf("%s: got a link to decision %s, want one that exists",
							path, number)
					}
				}

				return err
			})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func readDecisions(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "decisions.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
