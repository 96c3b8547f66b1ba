package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
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

// options are the flags, and what tests replace.
type options struct {
	interval, stall, buildStall time.Duration
	verbose                     bool
	dumps                       string        // path of the file for goroutines
	killAfter                   time.Duration // time for a process to end after a signal
	commandOut                  io.Writer     // standard error of the commands
}

// counts are numbers of tests and subtests.
type counts struct{ passed, failed, skipped int }

func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

func (c counts) minus(other counts) counts {
	return counts{c.passed - other.passed, c.failed - other.failed, c.skipped - other.skipped}
}

// progress is the state of all runs of go test. It is not safe for concurrent use.
type progress struct {
	options
	out     io.Writer
	now     func() time.Time
	counts  counts // over all commands
	hasDump bool   // this process has written to the file of dumps

	isStalled, isInterrupted bool

	// The fields below are of one command.
	running     map[string]*packageRun
	builds      map[string][]string // output of builds, by import path
	packages    int                 // number of packages of the command; 0 = not known
	ended       int                 // number of packages that have ended
	failures    []string            // names of the packages that failed
	lastEventAt time.Time
}

// packageRun is a package whose tests are running.
type packageRun struct {
	passed  int                 // number of top-level tests that passed or were skipped
	tests   map[string]*testRun // tests and subtests that have not ended
	output  map[string][]string // output by top-level test; "" = output of the package itself
	printed bool                // the output of a failed test was printed
}

// testRun is a test or subtest that has not ended.
type testRun struct {
	isPaused bool // a parallel test waits for its turn
	ranAt    time.Time
}

func newProgress(out io.Writer, now func() time.Time, o options) *progress {
	p := &progress{out: out, now: now, options: o}
	p.startCommand(0)
	return p
}

// startCommand forgets the packages of the command before.
func (p *progress) startCommand(packages int) {
	p.running, p.builds = map[string]*packageRun{}, map[string][]string{}
	p.packages, p.ended, p.failures = packages, 0, nil
	p.lastEventAt = p.now()
}

// errNothing is the result of a command without packages.
var errNothing = errors.New("no package was tested")

// events are the sources of events beside the output of a command.
type events struct {
	ticks, checks <-chan time.Time
	signals       <-chan os.Signal
}

// follow reads the output of a command until it ends. At each tick it prints the running tests, and at each check it
// looks for a stall. A stall and a signal call end once each; a second signal kills at once. It returns an error if the
// run failed, or if "in" cannot be read.
func (p *progress) follow(in io.Reader, other events, end func(syscall.Signal)) error {
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
				return cmp.Or(p.result(), <-readErr)
			}
			p.handleLine(line)
		case <-other.ticks:
			p.printRunning()
		case <-other.checks:
			p.checkStall(end)
		case <-other.signals:
			if p.isInterrupted {
				end(syscall.SIGKILL)
			} else {
				p.isInterrupted = true
				fmt.Fprintln(p.out, "interrupted")
				end(syscall.SIGINT)
			}
		}
	}
}

// checkStall ends a run without progress. SIGQUIT makes a Go program print its goroutines.
func (p *progress) checkStall(end func(syscall.Signal)) {
	if p.isStalled || p.isInterrupted {
		return
	}
	if text := p.describeStall(); text != "" {
		p.isStalled = true
		fmt.Fprintln(p.out, text)
		end(syscall.SIGQUIT)
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

// describeStall returns a sentence if nothing has happened for too long, or "". While no test runs, packages are
// built, which makes no events and takes long on a busy machine: then buildStall is the limit.
func (p *progress) describeStall() string {
	quiet := p.now().Sub(p.lastEventAt)
	var tests, waiting []string
	for _, name := range slices.Sorted(maps.Keys(p.running)) {
		run := p.running[name]
		tests = append(tests, run.findRunning()...)
		if len(run.tests) > 0 {
			waiting = append(waiting, name)
		}
	}

	switch {
	case len(waiting) == 0 && quiet >= p.buildStall:
		return fmt.Sprintf("%s no package was built for %s", p.describeFailures(), p.buildStall)
	case len(waiting) == 0 || quiet < p.stall:
		return ""
	case len(tests) == 0:
		tests = waiting
	}
	return fmt.Sprintf("%s %s made no progress for %s", p.describeFailures(), strings.Join(tests, ", "), p.stall)
}

// describeFailures begins a sentence about a run that ends early.
func (p *progress) describeFailures() string {
	switch p.counts.failed {
	case 0:
		return "no test failed:"
	case 1:
		return "1 test failed;"
	}
	return fmt.Sprintf("%d tests failed;", p.counts.failed)
}

func (p *progress) handleLine(line string) {
	p.lastEventAt = p.now()
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
		run = &packageRun{tests: map[string]*testRun{}, output: map[string][]string{}}
		p.running[e.Package] = run
	}
	if p.verbose && e.Action == "output" && !p.isStalled {
		fmt.Fprint(p.out, e.Output)
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
		run.tests[e.Test] = &testRun{ranAt: p.now()}
	case "pause":
		run.tests[e.Test] = &testRun{isPaused: true}
	case "output":
		run.output[top] = append(run.output[top], e.Output)
	case "pass", "skip", "fail":
		p.countTest(e)
		delete(run.tests, e.Test)
		if isSubtest {
			return
		}
		if e.Action == "fail" {
			p.printOutput(run.output[top])
			run.printed = true
		} else {
			run.passed++
		}
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
		p.printFailedPackage(e, run)
	default:
		return
	}
	p.ended++
	delete(p.running, e.Package)
}

// printFailedPackage prints the output of the build, of the tests that ran when the process ended, and of the package
// itself, if no failed test has explained the failure.
func (p *progress) printFailedPackage(e event, run *packageRun) {
	fmt.Fprint(p.out, strings.Join(p.builds[e.FailedBuild], ""))
	for _, test := range slices.Sorted(maps.Keys(run.output)) {
		if test != "" && run.tests[test] != nil && !run.tests[test].isPaused {
			p.printOutput(run.output[test])
		}
	}
	if !run.printed {
		p.printOutput(run.output[""])
	}
	fmt.Fprintf(p.out, "FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
	p.failures = append(p.failures, e.Package)
}
