package simulation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// mutantBuild is a test binary of this package. It contains all mutants of the program, except
// those that need a build of their own. The environment variable MUTANT chooses one.
type mutantBuild struct {
	dir    string
	binary string
	apart  map[string]bool // names of the mutants that need a build of their own
	err    error
}

// sharedBuild builds the binary with all mutants at its first call, because the compiler and the
// linker take longer than most mutants run. TestMain removes the binary.
var sharedBuild = sync.OnceValue(buildMutants)

// hasSharedBuild reports whether a test has called sharedBuild.
var hasSharedBuild bool

func buildMutants() mutantBuild {
	hasSharedBuild = true
	dir, err := os.MkdirTemp("", "weir-mutants-")
	if err != nil {
		return mutantBuild{err: err}
	}

	b := mutantBuild{dir: dir, binary: filepath.Join(dir, "simulation.test"),
		apart: map[string]bool{}}
	files, err := b.writeSources(listProgramMutants())
	if err == nil {
		err = buildWithOverlay(dir, files, b.binary)
	}

	b.err = err

	return b
}

// writeSources writes the source files with the mutants. It returns the paths of the written files
// by the paths of the files that they stand for.
func (b mutantBuild) writeSources(mutants []mutant) (map[string]string, error) {
	byFile := map[string][]numberedMutant{}
	for i, m := range mutants {
		byFile[m.file] = append(byFile[m.file], numberedMutant{m, i + 1})
	}

	written := map[string]string{}
	for file, list := range byFile {
		path, source, err := readMutated(file)
		if err != nil {
			return nil, err
		}

		text, apart, err := addMutants(source, list)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}

		for _, m := range apart {
			b.apart[m.name] = true
		}

		if written[path], err = b.writeFile(text); err != nil {
			return nil, err
		}

		// no such file is in the tree
		choice := filepath.Join(filepath.Dir(path), "chosen_mutant.go")
		if written[choice], err = b.writeChoice(source); err != nil {
			return nil, err
		}
	}

	return written, nil
}

// writeChoice writes the file that declares chosenMutant in the package of a source file.
func (b mutantBuild) writeChoice(source string) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.PackageClauseOnly)
	if err != nil {
		return "", err
	}
	return b.writeFile(fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar %s = os.Getenv(\"MUTANT\")\n",
		file.Name.Name, chosenMutant))
}

func (b mutantBuild) writeFile(text string) (string, error) {
	f, err := os.CreateTemp(b.dir, "*.go")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	return f.Name(), errors.Join(err, f.Close())
}

// buildWithOverlay builds the tests of this package. The compiler reads the files of the map in
// place of those that they stand for. The mutants were vetted with the program.
func buildWithOverlay(dir string, files map[string]string, binary string) error {
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": files})
	if err != nil {
		return err
	}

	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		return err
	}

	cmd := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", path,
		"-o", binary, "weir/internal/simulation")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the mutants: %w\n%s", err, out)
	}

	return nil
}

// listProgramMutants returns the mutants that change the program.
func listProgramMutants() []mutant {
	all := slices.Concat(mutants, mutantsSeenFromOutside, mutantsOfLarge, mutantsOfMoves,
		mutantsOfShortPages, mutantsOfKillers, mutantsOfBatches, mutantsOfAudits,
		mutantsOfGrowth, mutantsOfAhead, mutantsOfLife, mutantsOfChains, mutantsOfFolders,
		mutantsOfRates,
		relaneMutants)
	return slices.DeleteFunc(all, func(m mutant) bool { return m.file == "" })
}

// buildBinary returns the binary that runs the mutant.
func (m mutant) buildBinary(t *testing.T) string {
	t.Helper()
	shared := sharedBuild()
	if shared.err != nil {
		t.Fatal(shared.err)
	}

	if !shared.apart[m.name] {
		return shared.binary
	}

	dir := t.TempDir()
	path, source, err := m.readSource()
	if err != nil {
		t.Fatal(err)
	}

	changed, binary := filepath.Join(dir, "changed.go"), filepath.Join(dir, "simulation.test")
	if err := os.WriteFile(changed, []byte(m.replaceText(source)), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := buildWithOverlay(dir, map[string]string{path: changed}, binary); err != nil {
		t.Fatal(err)
	}

	return binary
}

// readSource returns the path and the text of the file that a mutant changes. It returns an error
// unless the file has the mutant's text exactly once.
func (m mutant) readSource() (path, source string, err error) {
	path, source, err = readMutated(m.file)
	if n := len(m.findText(source)); err == nil && n != 1 {
		err = fmt.Errorf("%s: %q is in %s %d times, want once", m.name, m.text, m.file, n)
	}
	return path, source, err
}

// findText returns the positions of the mutant's text in a source file. White space within the text
// stands for any other, so that a mutant outlives a blank line and a line that was broken.
func (m mutant) findText(source string) [][]int {
	inner := strings.TrimSpace(m.text)
	pattern := whiteSpace.ReplaceAllLiteralString(regexp.QuoteMeta(inner), `\s+`)
	pattern = strings.ReplaceAll(pattern, `\(`, `\(\s*`)
	before, after, _ := strings.Cut(m.text, inner)
	ends := strings.NewReplacer(" ", `\s+`)
	pattern = ends.Replace(before) + pattern + ends.Replace(after)
	return regexp.MustCompile(pattern).FindAllStringIndex(source, -1)
}

var whiteSpace = regexp.MustCompile(`\s+`)

// replaceText returns a source file with the mutant in it.
func (m mutant) replaceText(source string) string {
	found := m.findText(source)
	if len(found) == 0 {
		return source
	}
	return source[:found[0][0]] + m.new + source[found[0][1]:]
}

// readMutated returns the path and the text of a file that mutants name.
func readMutated(file string) (path, source string, err error) {
	path, err = filepath.Abs(filepath.Join("..", file))
	if err != nil {
		return "", "", err
	}
	data, err := os.ReadFile(path)
	return path, string(data), err
}
