package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// sample is a module with one file of each kind that the numbers distinguish.
var sample = map[string]string{
	"go.mod": "module weir\n\ngo 1.26\n",
	"internal/drain/key_state.go": `package drain

type keyState struct{ fields; at int }

type fields struct{ n int }

func (k *keyState) set() { k.at = 1 }
`,
	"internal/drain/other.go": `package drain

func move(k *keyState) {
	k.n++ // a field of the embedded type

	/* a comment
	   of two lines */
	k.set()
}
`,
	"internal/drain/reader.go": `package drain

func read(k *keyState) int {
	at := k.at
	return at
}
`,
	"internal/lane/rows/rows.go": "package rows\n\nfunc Read() {}\n",
	"internal/lane/lane.go":      "package lane\n\nimport \"weir/internal/lane/rows\"\n\nfunc Read() { rows.Read() }\n",
	"internal/list/list.go": `package list

import "weir/internal/lane/rows"

// Faked has one implementation, and a fake.
type Faked interface{ Fake(a int, f func(name string)) error }

// Single has one implementation, and no fake.
type Single interface{ Name() string }

// Double has two implementations.
type Double interface{ List() }

type (
	one struct{}
	two struct{}
)

func (one) Fake(b int, f func(string)) error { return nil }
func (*one) Name() string                    { return "" }
func (one) List()                            { rows.Read() }
func (two) List()                            {}
`,
	"internal/list/list_test.go": `package list_test

type fake struct{}

func (fake) Fake(int, func(string)) error { return nil }
`,
}

func loadSample(t *testing.T) *tree {
	t.Helper()
	dir := t.TempDir()
	for name, text := range sample {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	loaded, err := loadTree(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}

	return loaded
}

func TestTree_MeasuresASample(t *testing.T) {
	t.Parallel()
	loaded := loadSample(t)

	rows := slices.Concat(loaded.measureSource(), loaded.measureInterfaces(), loaded.measureDrain())
	got := map[string]string{}
	for _, r := range rows {
		got[r.name] = r.value
	}

	want := map[string]string{
		"lines of product code without blanks and comments":      "32",
		"functions over 60 lines":                                "0",
		"blank lines per 100 lines of bodies":                    "14.3",
		"lines over 100 columns":                                 "0.0 %",
		"packages that import lane/rows outside lane/**":         "1",
		"interfaces; with exactly one implementation":            "3; 2",
		"interfaces with exactly one implementation and no fake": "1",
		"files in drain":                                         "3",
		"files that write the state of a key":                    "2",
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: got %s, want %s", name, got[name], value)
		}
	}
}

func TestCoverage_CountsWhatOnlyTheMessageRan(t *testing.T) {
	t.Parallel()
	loaded := loadSample(t)
	idle, err := parseCoverage("mode: set\n" +
		"weir/internal/drain/key_state.go:7.26,7.38 1 1\n" +
		"weir/internal/drain/other.go:3.26,4.7 2 0\n")
	if err != nil {
		t.Fatal(err)
	}

	busy, err := parseCoverage("mode: set\n" +
		"weir/internal/drain/key_state.go:7.26,7.38 1 1\n" +
		"weir/internal/drain/other.go:3.26,4.7 2 1\n")
	if err != nil {
		t.Fatal(err)
	}

	rows := busy.without(idle).measure(loaded)
	if got, want := rows[0].value, "1 / 1"; got != want {
		t.Errorf("files / functions: got %s, want %s", got, want)
	}

	if got, want := rows[0].names[0], "internal/drain/other.go: move"; got != want {
		t.Errorf("function: got %s, want %s", got, want)
	}

	if got, want := rows[1].value, "0"; got != want {
		t.Errorf("functions of one statement: got %s, want %s", got, want)
	}

	if got, want := rows[2].value, "1 / 2"; got != want {
		t.Errorf("packages / statements: got %s, want %s", got, want)
	}
}
