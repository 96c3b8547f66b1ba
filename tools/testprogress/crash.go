package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// shownCrashLines is the highest number of lines of a panic that go to the terminal.
const shownCrashLines = 100

var (
	crashStart = regexp.MustCompile(
		`^(panic: |fatal error: |SIGQUIT: |\*\*\* Test killed|goroutine \d+ .*:$)`)
	timeout = regexp.MustCompile(
		`^(?:panic: test timed out after |\*\*\* Test killed.*ran too long \()([0-9a-z.]+)`)
	timedTest = regexp.MustCompile(`^\t\t(\S+ \(.*\))`) // below "running tests:"
)

// printOutput prints the output of a test or package. Of a panic it prints the first lines, and of
// a dump of goroutines after a time limit or a stall none: a file has the rest.
func (p *progress) printOutput(output []string) {
	lines := strings.SplitAfter(strings.Join(output, ""), "\n")
	start := 0
	for start < len(lines) && !crashStart.MatchString(strings.TrimRight(lines[start], "\n")) {
		start++
	}

	if !p.verbose {
		fmt.Fprint(p.out, strings.Join(lines[:start], ""))
	}

	crash := lines[start:]
	if len(crash) == 0 {
		return
	}

	shown := 0
	switch limit := timeout.FindStringSubmatch(crash[0]); {
	case limit != nil:
		fmt.Fprintf(p.out, "%s timeout: the limit of %s was over%s\n",
			p.describeFailures(), limit[1], describeTimedTests(crash))
	case !strings.HasPrefix(crash[0], "SIGQUIT: ") && !p.isStalled:
		shown = min(shownCrashLines, len(crash))
	}

	if !p.verbose {
		fmt.Fprint(p.out, strings.Join(crash[:shown], ""))
	}

	if shown < len(crash) {
		p.saveDump(crash)
	}
}

// describeTimedTests names the tests that the panic of the testing package lists as running.
func describeTimedTests(crash []string) string {
	var tests []string
	for _, line := range crash {
		if found := timedTest.FindStringSubmatch(line); found != nil {
			tests = append(tests, found[1])
		} else if len(tests) > 0 {
			break
		}
	}

	if len(tests) == 0 {
		return ""
	}

	return " while these ran: " + strings.Join(tests, ", ")
}

// saveDump appends a crash to the file of dumps, which it replaces at the first dump of this run.
func (p *progress) saveDump(crash []string) {
	mode := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if !p.hasDump {
		mode |= os.O_TRUNC
	}

	p.hasDump = true

	if err := os.MkdirAll(filepath.Dir(p.dumps), 0o755); err != nil {
		fmt.Fprintln(p.out, "testprogress: the goroutines are lost:", err)
		return
	}

	file, err := os.OpenFile(p.dumps, mode, 0o644)
	if err != nil {
		fmt.Fprintln(p.out, "testprogress: the goroutines are lost:", err)
		return
	}
	defer file.Close()

	if _, err := file.WriteString(strings.Join(crash, "")); err != nil {
		fmt.Fprintln(p.out, "testprogress: the goroutines are lost:", err)
		return
	}

	fmt.Fprintf(p.out, "the goroutines are in %s\n", p.dumps)
}
