package simulation_test

import (
	"go/format"
	"strings"
	"testing"
)

// TestMutants_TheBinaryWithoutAMutantBreaksNoRule runs every world in the shared binary, which has
// no race detector. It shows that the program keeps its rules, and that the switches of the binary
// break none by themselves. So a violation in a run with a mutant comes from that mutant.
func TestMutants_TheBinaryWithoutAMutantBreaksNoRule(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]struct {
		test string
		env  []string
	}{
		"the first half of the seeds": {"TestSeeds", []string{"SEEDS=150"}},
		"the other half":              {"TestSeeds", []string{"SEEDS=150", "FROM=151"}},
		"large":                       {"TestLarge", nil},
		"moves":                       {"TestMoves", nil},
		"short pages":                 {"TestShortPages", nil},
		"killers":                     {"TestKillers", nil},
		"batches":                     {"TestBatches", nil},
		"audits":                      {"TestAudits", nil},
		"growth":                      {"TestGrowth", nil},
		"bodies ahead":                {"TestAhead", nil},
		"long life":                   {"TestLongLife", nil},
		"chains":                      {"TestChains", nil},
		"in a folder":                 {"TestInFolder", nil},
		"relane":                      {"TestRelane", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, err := (mutant{}).runTest(t, run.test, run.env...); err != nil {
				t.Errorf("got %v, want no violation\n%.4000s", err, out)
			}
		})
	}
}

func TestMutants_HaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, m := range listProgramMutants() {
		if seen[m.name] {
			t.Errorf("%q: got two mutants of this name, want one", m.name)
		}
		seen[m.name] = true
	}
}

func TestAddMutants(t *testing.T) {
	t.Parallel()
	const source = `package p

import "fmt"

const limit = 3

type list[T any] struct{ items []T }

// add keeps its comment.
func (l *list[T]) add(_ int, more ...T) (n int, err error) { return limit, nil }

func first[K comparable, V any](k K, _, v V) V { return v }

func (list[T]) print() { fmt.Println("p") }
`

	for name, c := range map[string]struct {
		text, new string
		want      []string // lines of the result
		apart     bool
	}{
		"a method": {"return limit, nil", "return 0, nil", []string{
			"func (receiver *list[T]) add(parameter0 int, parameter1 ...T) (n int, err error) {",
			`case "m":`,
			"return receiver.addMutant1(parameter0, parameter1...)",
			"return receiver.addMutant0(parameter0, parameter1...)",
			"func (l *list[T]) addMutant0(_ int, more ...T) (n int, err error) { return limit, nil }",
			"func (l *list[T]) addMutant1(_ int, more ...T) (n int, err error) { return 0, nil }",
		}, false},
		"a function with type parameters": {"return v }", "panic(k) }", []string{
			"func first[K comparable, V any](parameter0 K, parameter1 V, parameter2 V) V {",
			"return firstMutant1[K, V](parameter0, parameter1, parameter2)",
			"func firstMutant1[K comparable, V any](k K, _, v V) V { panic(k) }",
		}, false},
		"a method without a result": {`"p"`, `"q"`, []string{
			"func (receiver list[T]) print() {",
			"receiver.printMutant1()",
		}, false},
		"a declaration of its own": {"const limit", "var more = 1\n\nconst limit", []string{
			"var more = 1", "const limit = 3",
		}, false},
		"a constant": {"limit = 3", "limit = 4", []string{"const limit = 3"}, true},
		"a parameter": {"k K, _, v V", "k K, v, _ V",
			[]string{"func first[K comparable, V any](k K, _, v V) V { return v }"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, apart, err := addMutants(source,
				[]numberedMutant{{mutant{name: "m", text: c.text, new: c.new}, 1}})
			if err != nil {
				t.Fatal(err)
			}

			if (len(apart) == 1) != c.apart {
				t.Errorf("got %d mutants apart, want one: %t", len(apart), c.apart)
			}

			formatted, err := format.Source([]byte(text))
			if err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}

			for _, line := range c.want {
				if !strings.Contains(string(formatted), line) {
					t.Errorf("got\n%s\nwant a line %q", formatted, line)
				}
			}
		})
	}
}

// A mutant outlives another layout of its line, and no other change of it.
func TestMutant_FindText(t *testing.T) {
	t.Parallel()
	m := mutant{text: "send(a, b)\n\treturn"}
	for source, want := range map[string]int{
		"send(a, b)\n\treturn":                     1,
		"send(\n\t\ta,\n\t\tb)\n\n\treturn":        1,
		"send(a, c)\n\treturn":                     0,
		"send(a, b)\nreturn\nsend(a, b)\n\nreturn": 2,
	} {
		if got := len(m.findText(source)); got != want {
			t.Errorf("%q: got %d, want %d", source, got, want)
		}
	}
}
