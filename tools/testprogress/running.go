package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// shownTests is the highest number of running tests that a line names.
const shownTests = 3

// findRunning returns the tests that run, the longest first. A test with subtests does not count:
// it waits for them.
func (r *packageRun) findRunning() []string {
	hasSubtest := map[string]bool{}
	for name := range r.tests {
		for i := range name {
			if name[i] == '/' {
				hasSubtest[name[:i]] = true
			}
		}
	}

	var found []string
	for name, test := range r.tests {
		if !test.isPaused && !hasSubtest[name] {
			found = append(found, name)
		}
	}

	slices.SortFunc(found, func(a, b string) int {
		return cmp.Or(r.tests[a].ranAt.Compare(r.tests[b].ranAt), strings.Compare(a, b))
	})

	return found
}

// countPaused returns the number of tests and subtests that wait for their turn.
func (r *packageRun) countPaused() (n int) {
	for _, test := range r.tests {
		if test.isPaused {
			n++
		}
	}
	return n
}

// printRunning prints a line for each package with running tests: how many tests have passed, how
// many wait, and which have run for the longest time. The last line also has the number of packages
// that have not begun.
func (p *progress) printRunning() {
	var lines []string
	ended, left := 0, 0
	for _, c := range p.commands {
		shown := p.describeRunning(c)
		lines = append(lines, shown...)
		ended += c.ended
		left += max(0, c.packages-c.ended-len(shown))
	}

	if len(lines) == 0 {
		lines = append(lines, "...   no test runs yet")
		if ended > 0 {
			lines[0] = "...   no test runs"
		}
	}

	if left > 0 {
		lines[len(lines)-1] += fmt.Sprintf("; %s left", countPackages(left))
	}

	fmt.Fprintln(p.out, strings.Join(lines, "\n"))
}

// describeRunning returns a line for each package of the command with running tests.
func (p *progress) describeRunning(c *command) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(c.running)) {
		run := c.running[name]
		tests := run.findRunning()
		if len(tests) == 0 {
			continue
		}

		line := fmt.Sprintf("...   %s  %d passed", name, run.passed)
		if n := run.countPaused(); n > 0 {
			line += fmt.Sprintf(", %d wait", n)
		}

		lines = append(lines, line+"; running: "+p.describeTests(run, tests))
	}

	return lines
}

func (p *progress) describeTests(run *packageRun, tests []string) string {
	var shown []string
	for _, test := range tests[:min(shownTests, len(tests))] {
		shown = append(shown, fmt.Sprintf("%s (%s)", test,
			p.now().Sub(run.tests[test].ranAt).Round(time.Second)))
	}

	if more := len(tests) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("%d more", more))
	}

	return strings.Join(shown, ", ")
}

func countPackages(n int) string {
	if n == 1 {
		return "1 package"
	}
	return fmt.Sprintf("%d packages", n)
}
