package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action      string
	Package     string
	ImportPath  string // import path of the build that printed the output
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string
}

// progress is the state of one run of go test. It is not safe for concurrent use.
type progress struct {
	out      io.Writer
	now      func() time.Time
	running  map[string]*packageRun
	builds   map[string][]string                   // output of builds, by import path
	ended    int                                   // number of packages that have ended
	failures []string                              // names of the packages that failed
	counts   struct{ passed, failed, skipped int } // numbers of tests and subtests, over all packages
}

// packageRun is a package whose tests are running.
type packageRun struct {
	passed  int                  // number of top-level tests that passed or were skipped
	tests   map[string]time.Time // start times of the running top-level tests; paused tests are left out
	output  map[string][]string  // output by top-level test; "" = output of the package itself
	printed bool                 // the output of a failed test was printed
}

func newProgress(out io.Writer, now func() time.Time) *progress {
	return &progress{out: out, now: now, running: map[string]*packageRun{}, builds: map[string][]string{}}
}

// errNothing is the result of an input without packages.
var errNothing = errors.New("no package was tested")

// follow reads events until "in" ends. At each tick it prints the running tests, and at the end the numbers of tests.
// It returns an error if the run failed, or if "in" cannot be read.
func (p *progress) follow(in io.Reader, ticks <-chan time.Time) error {
	lines, readErr := make(chan string), make(chan error, 1)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, 16<<20) // tests can print long lines
		for scanner.Scan() {
			lines <- scanner.Text()
		}
		readErr <- scanner.Err()
	}()
	for {
		select {
		case line, isOpen := <-lines:
			if !isOpen {
				fmt.Fprintf(p.out, "total %d passed, %d failed, %d skipped\n", p.counts.passed, p.counts.failed,
					p.counts.skipped)
				return cmp.Or(<-readErr, p.result())
			}
			p.handleLine(line)
		case <-ticks:
			p.printRunning()
		}
	}
}

func (p *progress) result() error {
	switch {
	case len(p.failures) > 0:
		return fmt.Errorf("%d of %d packages failed: %s", len(p.failures), p.ended, strings.Join(p.failures, ", "))
	case len(p.running) > 0:
		return fmt.Errorf("did not end: %s", strings.Join(slices.Sorted(maps.Keys(p.running)), ", "))
	case p.ended == 0:
		return errNothing
	}
	return nil
}

func (p *progress) handleLine(line string) {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Action == "" {
		fmt.Fprintln(p.out, line) // a message of the go command
		return
	}
	if e.Action == "build-output" {
		p.builds[e.ImportPath] = append(p.builds[e.ImportPath], e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	run := p.running[e.Package]
	if run == nil {
		run = &packageRun{tests: map[string]time.Time{}, output: map[string][]string{}}
		p.running[e.Package] = run
	}
	if e.Test == "" {
		p.handlePackage(e, run)
	} else {
		p.handleTest(e, run)
	}
}

func (p *progress) handleTest(e event, run *packageRun) {
	top, _, isSubtest := strings.Cut(e.Test, "/")
	switch e.Action {
	case "run", "cont":
		if !isSubtest {
			run.tests[e.Test] = p.now()
		}
	case "pause": // a parallel test waits for its turn
		delete(run.tests, e.Test)
	case "output":
		run.output[top] = append(run.output[top], e.Output)
	case "pass", "skip", "fail":
		p.countTest(e)
		if isSubtest {
			return
		}
		if e.Action == "fail" {
			fmt.Fprint(p.out, strings.Join(run.output[top], ""))
			run.printed = true
		} else {
			run.passed++
		}
		delete(run.tests, top)
		delete(run.output, top)
	}
}

// countTest counts a test that has ended. It prints the name of a skipped test, because this project allows no skipped
// tests.
func (p *progress) countTest(e event) {
	switch e.Action {
	case "pass":
		p.counts.passed++
	case "fail":
		p.counts.failed++
	case "skip":
		p.counts.skipped++
		fmt.Fprintf(p.out, "SKIP  %s %s\n", e.Package, e.Test)
	}
}

func (p *progress) handlePackage(e event, run *packageRun) {
	switch e.Action {
	case "output":
		run.output[""] = append(run.output[""], e.Output)
		return
	case "pass":
		fmt.Fprintf(p.out, "ok    %s  %.1fs  %d passed\n", e.Package, e.Elapsed, run.passed)
	case "skip":
		fmt.Fprintf(p.out, "      %s  no tests\n", e.Package)
	case "fail":
		fmt.Fprint(p.out, strings.Join(p.builds[e.FailedBuild], ""))
		for _, test := range slices.Sorted(maps.Keys(run.tests)) { // tests that ran when the process ended
			fmt.Fprint(p.out, strings.Join(run.output[test], ""))
		}
		if !run.printed {
			fmt.Fprint(p.out, strings.Join(run.output[""], ""))
		}
		fmt.Fprintf(p.out, "FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
		p.failures = append(p.failures, e.Package)
	default:
		return
	}
	p.ended++
	delete(p.running, e.Package)
}

// shownTests is the highest number of running tests that a line names.
const shownTests = 3

// printRunning prints a line for each package with running tests: how many tests have passed, and which tests have run
// for the longest time.
func (p *progress) printRunning() {
	for _, name := range slices.Sorted(maps.Keys(p.running)) {
		run := p.running[name]
		tests := slices.SortedFunc(maps.Keys(run.tests), func(a, b string) int {
			return cmp.Or(run.tests[a].Compare(run.tests[b]), strings.Compare(a, b))
		})
		if len(tests) == 0 {
			continue
		}
		var shown []string
		for _, test := range tests[:min(shownTests, len(tests))] {
			shown = append(shown, fmt.Sprintf("%s (%s)", test, p.now().Sub(run.tests[test]).Round(time.Second)))
		}
		if more := len(tests) - len(shown); more > 0 {
			shown = append(shown, fmt.Sprintf("%d more", more))
		}
		fmt.Fprintf(p.out, "...   %s  %d passed; running: %s\n", name, run.passed, strings.Join(shown, ", "))
	}
}
