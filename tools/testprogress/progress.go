package main

import (
	"bufio"
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

// add counts a test that has ended with the action.
func (c *counts) add(action string) {
	switch action {
	case "pass":
		c.passed++
	case "fail":
		c.failed++
	case "skip":
		c.skipped++
	}
}

// progress is the state of all runs of go test. It is not safe for concurrent use.
type progress struct {
	options
	out         io.Writer
	now         func() time.Time
	commands    []*command
	counts      counts // over all commands
	lastEventAt time.Time
	hasDump     bool // this process has written to the file of dumps

	isStalled, isInterrupted, hasFailed bool
}

// packageRun is a package whose tests are running.
type packageRun struct {
	passed  int                 // number of top-level tests that passed or were skipped
	tests   map[string]*testRun // tests and subtests that have not ended
	output  map[string][]string // output by top-level test; "" = output of the package itself
	printed bool                // the output of a failed test was printed
	cpu     string              // processor time of the test binary; "" = not known
}

// testRun is a test or subtest that has not ended.
type testRun struct {
	isPaused bool // a parallel test waits for its turn
	ranAt    time.Time
}

func newProgress(out io.Writer, now func() time.Time, o options) *progress {
	return &progress{out: out, now: now, options: o, lastEventAt: now()}
}

// reportError prints an error, which makes the run a failed one.
func (p *progress) reportError(err error) {
	fmt.Fprintln(p.out, "testprogress:", err)
	p.hasFailed = true
}

// errNothing is the result of a command without packages.
var errNothing = errors.New("no package was tested")

// events are the sources of events beside the output of the commands.
type events struct {
	ticks, checks <-chan time.Time
	signals       <-chan os.Signal
}

// outputLine is a line that a command has printed, or the end of its output.
type outputLine struct {
	from    *command
	text    string
	isEnd   bool
	readErr error // after the end
}

// readOutput sends each line of the command's output, and its end.
func (c *command) readOutput(lines chan<- outputLine) {
	scanner := bufio.NewScanner(c.output)
	scanner.Buffer(nil, 16<<20) // tests can print long lines
	for scanner.Scan() {
		lines <- outputLine{from: c, text: scanner.Text()}
	}
	lines <- outputLine{from: c, isEnd: true, readErr: scanner.Err()}
}

// follow reads the output of all commands until they end. At each tick it prints the running tests,
// and at each check it looks for a stall. A stall and a signal end the commands; a second signal
// kills them at once.
func (p *progress) follow(other events) {
	lines := make(chan outputLine)
	for _, c := range p.commands {
		go c.readOutput(lines)
	}

	for left := slices.Clone(p.commands); len(left) > 0; {
		select {
		case line := <-lines:
			if !line.isEnd {
				p.handleLine(line.from, line.text)
				continue
			}
			p.endCommand(line.from, line.readErr)
			left = slices.DeleteFunc(left, func(c *command) bool { return c == line.from })

		case <-other.ticks:
			p.printRunning()
		case <-other.checks:
			p.checkStall(left)
		case <-other.signals:
			p.handleInterrupt(left)
		}
	}
}

func (p *progress) handleInterrupt(left []*command) {
	if p.isInterrupted {
		endCommands(left, syscall.SIGKILL)
		return
	}

	p.isInterrupted = true
	fmt.Fprintln(p.out, "interrupted")
	endCommands(left, syscall.SIGINT)
}

func endCommands(commands []*command, signal syscall.Signal) {
	for _, c := range commands {
		c.process.end(signal)
	}
}

// checkStall ends a run without progress. SIGQUIT makes a Go program print its goroutines.
func (p *progress) checkStall(left []*command) {
	if p.isStalled || p.isInterrupted {
		return
	}

	if text := p.describeStall(); text != "" {
		p.isStalled = true
		fmt.Fprintln(p.out, text)
		endCommands(left, syscall.SIGQUIT)
	}
}

func (c *command) result() error {
	switch {
	case len(c.failures) > 0:
		return fmt.Errorf("%d of %d packages failed: %s", len(c.failures), c.ended,
			strings.Join(c.failures, ", "))
	case len(c.running) > 0:
		return fmt.Errorf("did not end: %s",
			strings.Join(slices.Sorted(maps.Keys(c.running)), ", "))
	case c.ended == 0:
		return errNothing
	}

	return nil
}

// describeStall returns a sentence if nothing has happened for too long, or "". While no test runs,
// packages are built, which makes no events and takes long on a busy machine: then buildStall is
// the limit.
func (p *progress) describeStall() string {
	quiet := p.now().Sub(p.lastEventAt)
	var tests, waiting []string
	for _, c := range p.commands {
		for _, name := range slices.Sorted(maps.Keys(c.running)) {
			run := c.running[name]
			tests = append(tests, run.findRunning()...)
			if len(run.tests) > 0 {
				waiting = append(waiting, name)
			}
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

	return fmt.Sprintf("%s %s made no progress for %s", p.describeFailures(),
		strings.Join(tests, ", "), p.stall)
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

func (p *progress) handleLine(c *command, line string) {
	p.lastEventAt = p.now()
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Action == "" {
		fmt.Fprintln(p.out, line) // a message of the go command
		return
	}

	if e.Action == "build-output" {
		c.builds[e.ImportPath] = append(c.builds[e.ImportPath], e.Output)
		return
	}

	if e.Package == "" {
		return
	}

	run := c.running[e.Package]
	if run == nil {
		run = &packageRun{tests: map[string]*testRun{}, output: map[string][]string{}}
		c.running[e.Package] = run
	}

	if p.verbose && e.Action == "output" && !p.isStalled {
		fmt.Fprint(p.out, e.Output)
	}

	if text, isMeasured := strings.CutPrefix(e.Output, measuredPrefix); isMeasured {
		run.cpu = ", cpu " + strings.TrimSpace(text)
		return
	}

	if e.Test == "" {
		p.handlePackage(c, e, run)
	} else {
		p.handleTest(c, e, run)
	}
}

func (p *progress) handleTest(c *command, e event, run *packageRun) {
	top, _, isSubtest := strings.Cut(e.Test, "/")
	switch e.Action {
	case "run", "cont":
		run.tests[e.Test] = &testRun{ranAt: p.now()}
	case "pause":
		run.tests[e.Test] = &testRun{isPaused: true}
	case "output":
		run.output[top] = append(run.output[top], e.Output)
	case "pass", "skip", "fail":
		p.countTest(c, e)
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

// countTest counts a test that has ended. It prints the name of a skipped test, because this
// project allows no skipped tests.
func (p *progress) countTest(c *command, e event) {
	p.counts.add(e.Action)
	c.counts.add(e.Action)
	if e.Action == "skip" {
		fmt.Fprintf(p.out, "SKIP  %s %s\n", e.Package, e.Test)
	}
}

func (p *progress) handlePackage(c *command, e event, run *packageRun) {
	switch e.Action {
	case "output":
		run.output[""] = append(run.output[""], e.Output)
		return
	case "pass":
		fmt.Fprintf(p.out, "ok    %s  %.1fs%s  %d passed\n", e.Package, e.Elapsed, run.cpu, run.passed)
	case "skip":
		fmt.Fprintf(p.out, "      %s  no tests\n", e.Package)
	case "fail":
		p.printFailedPackage(c, e, run)
	default:
		return
	}

	c.ended++
	delete(c.running, e.Package)
}

// printFailedPackage prints the output of the build, of the tests that ran when the process ended,
// and of the package itself, if no failed test has explained the failure.
func (p *progress) printFailedPackage(c *command, e event, run *packageRun) {
	fmt.Fprint(p.out, strings.Join(c.builds[e.FailedBuild], ""))
	for _, test := range slices.Sorted(maps.Keys(run.output)) {
		if test != "" && run.tests[test] != nil && !run.tests[test].isPaused {
			p.printOutput(run.output[test])
		}
	}

	if !run.printed {
		p.printOutput(run.output[""])
	}

	fmt.Fprintf(p.out, "FAIL  %s  %.1fs%s\n", e.Package, e.Elapsed, run.cpu)
	c.failures = append(c.failures, e.Package)
}
