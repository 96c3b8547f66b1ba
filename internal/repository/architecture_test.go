package repository_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root         = "../.."
	architecture = root + "/docs/architecture.md"
)

var (
	quoted   = regexp.MustCompile("`([^`\n]+)`")
	treePath = regexp.MustCompile(
		`^(internal|functions|handler|tools|docs|deploy)(/[A-Za-z0-9_./-]*)?$`)
	testName = regexp.MustCompile(`^Test[A-Z]\w*$`)
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(t \*testing\.T\)`)
)

// Each path and each test that docs/architecture.md names in backquotes must exist. So a rename
// must also change the document.
func TestArchitecture_NamesExist(t *testing.T) {
	t.Parallel()
	text := readArchitecture(t)
	tests := testsOfTree(t)
	paths := 0
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		switch name := match[1]; {
		case treePath.MatchString(name):
			paths++
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("docs/architecture.md names the path %s, want a path that exists", name)
			}

		case testName.MatchString(name) && !tests[name]:
			t.Errorf("docs/architecture.md names the test %s, want a test that exists", name)
		}
	}

	if paths < 50 {
		t.Errorf("got %d paths in docs/architecture.md, want 50 at least: the pattern may be wrong",
			paths)
	}
}

// docs/architecture.md must name each package in the map "may" (see imports_test.go), and each
// Azure function.
func TestArchitecture_HasEveryPackage(t *testing.T) {
	t.Parallel()
	text := readArchitecture(t)
	for pkg := range may {
		name := strings.TrimPrefix(pkg, "weir/")
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/architecture.md does not name the package %s, want its name", name)
		}
	}

	folders, err := filepath.Glob(root + "/functions/*/function.json")
	if err != nil || len(folders) == 0 {
		t.Fatalf("functions: got %d, %v, want more than 0 folders and no error", len(folders), err)
	}

	for _, folder := range folders {
		if name := "functions/" +
			filepath.Base(filepath.Dir(folder)); !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/architecture.md does not name the function %s, want its name", name)
		}
	}
}

// packageRow matches a row of the table of packages in docs/architecture.md. Its groups are the
// package and the imports.
var packageRow = regexp.MustCompile(
	"(?m)^\\| `(internal/[^`]+|handler)` \\| [^|]* \\| ([^|]*) \\|$")

// The table of packages in docs/architecture.md must list the same imports as the map "may" (see
// imports_test.go).
func TestArchitecture_HasTheImports(t *testing.T) {
	t.Parallel()
	rows := 0
	for _, row := range packageRow.FindAllStringSubmatch(readArchitecture(t), -1) {
		want, listed := may["weir/"+row[1]]
		if !listed {
			continue
		}

		rows++
		var got []string
		for name := range strings.SplitSeq(row[2], ",") {
			if name = strings.TrimSpace(name); name != "–" {
				got = append(got, "weir/internal/"+name)
			}
		}

		slices.Sort(got)
		if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
			t.Errorf("docs/architecture.md has the imports %q of %s, want %q", got, row[1], want)
		}
	}

	if rows < len(may)-10 {
		t.Errorf("got %d rows of packages, want about %d: the pattern may be wrong", rows, len(may))
	}
}

func readArchitecture(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(architecture)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// testsOfTree returns the names of all test functions, as a set.
func testsOfTree(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, dir := range []string{"internal", "functions", "handler", "tools"} {
		err := filepath.WalkDir(filepath.Join(root, dir),
			func(path string, entry fs.DirEntry, err error) error {
				switch {
				case err != nil:
					return err
				case entry.Name() == "node_modules":
					return fs.SkipDir
				case !strings.HasSuffix(path, "_test.go"):
					return nil
				}

				source, err := os.ReadFile(path)
				for _, match := range testFunc.FindAllStringSubmatch(string(source), -1) {
					names[match[1]] = true
				}

				return err
			})
		if err != nil {
			t.Fatal(err)
		}
	}

	return names
}
