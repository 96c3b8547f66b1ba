package repository_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	markdownHeading = regexp.MustCompile(`^#+ (.*)`)
	notInAnAnchor   = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// The file and the heading of each relative link in the documents must exist. So a change that
// moves a section must also change the links to that section.
func TestLinks_LeadSomewhere(t *testing.T) {
	t.Parallel()
	documents := readDocuments(t)
	if len(documents) < 20 {
		t.Fatalf("got %d documents below %s, want 20 at least", len(documents), root)
	}

	for path, text := range documents {
		for _, link := range markdownLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(link[1], ":") {
				continue // an address outside of the repository
			}

			file, anchor, _ := strings.Cut(link[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}

			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, want a file that exists: %v", path, link[1], err)
			} else if linked, isDocument := documents[target]; isDocument && anchor != "" &&
				!hasAnchor(linked, anchor) {
				t.Errorf("%s links to %s, want a heading that exists", path, link[1])
			}
		}
	}
}

// readDocuments returns the texts of the repository's Markdown files by path. It skips built and
// installed files.
func readDocuments(t *testing.T) map[string]string {
	t.Helper()
	documents := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == "build" ||
			entry.Name() == ".git"):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}

		text, err := os.ReadFile(path)
		documents[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return documents
}

// hasAnchor reports whether a document has a heading with the given anchor. GitHub makes the anchor
// from the heading's text: in lower case, with hyphens in place of spaces, and without punctuation.
func hasAnchor(text, anchor string) bool {
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}

		heading := markdownHeading.FindStringSubmatch(strings.TrimSpace(line))
		if fenced || heading == nil {
			continue
		}

		name := notInAnAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading[1])), "")
		if strings.ReplaceAll(name, " ", "-") == anchor {
			return true
		}
	}

	return false
}
