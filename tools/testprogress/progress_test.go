package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const passing = `{"Action":"start","Package":"weir/a"}
{"Action":"run","Package":"weir/a","Test":"TestOne"}
{"Action":"output","Package":"weir/a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"run","Package":"weir/a","Test":"TestOne/sub"}
{"Action":"pass","Package":"weir/a","Test":"TestOne/sub","Elapsed":0.1}
{"Action":"pass","Package":"weir/a","Test":"TestOne","Elapsed":0.1}
{"Action":"output","Package":"weir/a","Output":"ok\n"}
{"Action":"pass","Package":"weir/a","Elapsed":1.25}
{"Action":"skip","Package":"weir/b"}
`

func TestFollow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, out, err string }{
		"passes": {passing,
			"ok    weir/a  1.2s  1 passed\n      weir/b  no tests\n", ""},
		"the processor time is measured": {`{"Action":"pass","Package":"weir/a","Test":"TestOne"}
{"Action":"output","Package":"weir/a","Output":"testprogress: cpu 3.1s\n"}
{"Action":"pass","Package":"weir/a","Elapsed":2}
`, "ok    weir/a  2.0s, cpu 3.1s  1 passed\n", ""},
		"the processor time of a crash": {`{"Action":"run","Package":"weir/a","Test":"TestOne"}
{"Action":"output","Package":"weir/a","Test":"TestOne","Output":"panic: no\n"}
{"Action":"output","Package":"weir/a","Test":"TestOne","Output":"testprogress: cpu 3.1s\n"}
{"Action":"fail","Package":"weir/a","Elapsed":2}
`, "panic: no\nFAIL  weir/a  2.0s, cpu 3.1s\n", "1 of 1 packages failed: weir/a"},
		"a test is skipped": {`{"Action":"run","Package":"weir/a","Test":"TestOne"}
{"Action":"skip","Package":"weir/a","Test":"TestOne/sub"}
{"Action":"pass","Package":"weir/a","Test":"TestOne"}
{"Action":"pass","Package":"weir/a","Elapsed":2}
`, "SKIP  weir/a TestOne/sub\nok    weir/a  2.0s  1 passed\n", ""},
		"a test fails": {`{"Action":"run","Package":"weir/a","Test":"TestOne"}
{"Action":"output","Package":"weir/a","Test":"TestOne","Output":"got 1, want 2\n"}
{"Action":"output","Package":"weir/a","Test":"TestOne/sub","Output":"in the subtest\n"}
{"Action":"fail","Package":"weir/a","Test":"TestOne"}
{"Action":"output","Package":"weir/a","Output":"FAIL\n"}
{"Action":"fail","Package":"weir/a","Elapsed":2}
`, "got 1, want 2\nin the subtest\nFAIL  weir/a  2.0s\n",
			"1 of 1 packages failed: weir/a"},
		"a process panics": {`{"Action":"run","Package":"weir/a","Test":"TestOne"}
{"Action":"output","Package":"weir/a","Test":"TestOne","Output":"panic: no\n"}
{"Action":"fail","Package":"weir/a","Elapsed":2}
`, "panic: no\nFAIL  weir/a  2.0s\n", "1 of 1 packages failed: weir/a"},
		"a build fails": {`{"ImportPath":"weir/a [weir/a.test]","Action":"build-output","Output":"a.go:1: undefined: x\n"}
{"ImportPath":"weir/a [weir/a.test]","Action":"build-fail"}
{"Action":"fail","Package":"weir/a","Elapsed":0,"FailedBuild":"weir/a [weir/a.test]"}
`, "a.go:1: undefined: x\nFAIL  weir/a  0.0s\n", "1 of 1 packages failed: weir/a"},
		"the input is cut off": {`{"Action":"run","Package":"weir/a","Test":"TestOne"}
`, "", "did not end: weir/a"},
		"nothing is tested": {"go: no such module\n",
			"go: no such module\n", "no package was tested"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			p := newProgress(&out, func() time.Time { return time.Time{} }, options{})
			p.addCommand("it", 0, strings.NewReader(c.in))
			p.follow(events{})

			printed, last, _ := strings.Cut(out.String(), "it: ")
			_, problem, hasFailed := strings.Cut(last, "testprogress: ")
			problem = strings.TrimSuffix(problem, "\n")
			if printed != c.out || problem != c.err || hasFailed != p.hasFailed {
				t.Errorf("got %q and error %q (failed: %v), want %q and %q", printed, problem,
					p.hasFailed, c.out, c.err)
			}
		})
	}
}

func TestFollow_CountsTestsAndSubtests(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := newProgress(&out, func() time.Time { return time.Time{} }, options{})
	p.addCommand("one", 2, strings.NewReader(passing))
	p.addCommand("other", 2, strings.NewReader(passing))
	p.follow(events{})

	if want := (counts{passed: 4}); p.counts != want || p.hasFailed {
		t.Errorf("got %v over two commands, failed: %v, want %v and false", p.counts,
			p.hasFailed, want)
	}

	for _, name := range []string{"one", "other"} {
		if want := name + ": 2 passed, 0 failed, 0 skipped in 0s\n"; !strings.Contains(out.String(),
			want) {
			t.Errorf("got\n%s\nwant the line %q", out.String(), want)
		}
	}
}

// fakeRun is a run in a time that only the test moves on.
type fakeRun struct {
	*progress
	command *command
	out     strings.Builder
	at      time.Time
}

func newFakeRun(o options, packages int) *fakeRun {
	r := &fakeRun{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	r.progress = newProgress(&r.out, func() time.Time { return r.at }, o)
	r.command = r.addCommand("it", packages, nil)
	return r
}

// handleAll handles actions of tests of weir/a, each "action test", with a minute after each.
func (r *fakeRun) handleAll(actions ...string) {
	for _, text := range actions {
		action, test, _ := strings.Cut(text, " ")
		r.handleLine(r.command, `{"Action":"`+action+`","Package":"weir/a","Test":"`+test+`"}`)
		r.at = r.at.Add(time.Minute)
	}
}

func TestPrintRunning(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		actions []string
		want    string
	}{
		"nothing": {nil, "...   no test runs yet; 3 packages left\n"},
		"the longest": {[]string{"run TestA", "run TestB", "run TestC", "run TestD", "run TestE",
			"pass TestB"},
			"...   weir/a  1 passed; running: TestA (6m0s), TestC (4m0s), TestD (3m0s), 1 more; 2 packages left\n"},
		"one waits": {[]string{"run TestA", "run TestB", "pause TestB"},
			"...   weir/a  0 passed, 1 wait; running: TestA (3m0s); 2 packages left\n"},
		"it waited": {[]string{"run TestA", "pause TestA", "run TestB", "pass TestB", "cont TestA"},
			"...   weir/a  1 passed; running: TestA (1m0s); 2 packages left\n"},
		"a parent waits for its subtests": {[]string{"run TestA", "run TestA/one",
			"pause TestA/one", "run TestA/two", "pause TestA/two", "run TestB"},
			"...   weir/a  0 passed, 2 wait; running: TestB (1m0s); 2 packages left\n"},
		"a subtest runs": {[]string{"run TestA", "run TestA/one", "pause TestA/one",
			"run TestA/two/deep", "cont TestA/one", "pass TestA/two/deep"},
			"...   weir/a  0 passed; running: TestA/one (2m0s); 2 packages left\n"},
		"the subtests have ended": {[]string{"run TestA", "run TestA/one", "pass TestA/one"},
			"...   weir/a  0 passed; running: TestA (3m0s); 2 packages left\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFakeRun(options{}, 3)
			r.handleAll(c.actions...)
			r.printRunning()
			if r.out.String() != c.want {
				t.Errorf("got %q, want %q", r.out.String(), c.want)
			}
		})
	}
}

func TestPrintRunning_ShowsAllCommands(t *testing.T) {
	t.Parallel()
	r := newFakeRun(options{}, 3)
	other := r.addCommand("other", 4, nil)
	r.handleAll("run TestA")
	r.handleLine(other, `{"Action":"run","Package":"weir/b","Test":"TestB"}`)
	r.printRunning()
	want := "...   weir/a  0 passed; running: TestA (1m0s)\n" +
		"...   weir/b  0 passed; running: TestB (0s); 5 packages left\n"
	if r.out.String() != want {
		t.Errorf("got %q, want %q", r.out.String(), want)
	}
}

// A run makes progress as long as one of its commands does.
func TestDescribeStall_LooksAtAllCommands(t *testing.T) {
	t.Parallel()
	r := newFakeRun(options{stall: 5 * time.Minute, buildStall: 30 * time.Minute}, 1)
	other := r.addCommand("other", 1, nil)
	r.handleAll("run TestA", "run TestB")

	for range 6 {
		r.at = r.at.Add(3 * time.Minute)
		if got := r.describeStall(); got != "" {
			t.Fatalf("got %q although the other command made progress", got)
		}
		r.handleLine(other, `{"Action":"output","Package":"weir/b","Test":"TestC","Output":"x"}`)
	}

	r.at = r.at.Add(5 * time.Minute)
	if got, want := r.describeStall(), "no test failed: TestA, TestB made no progress for 5m0s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDescribeStall(t *testing.T) {
	t.Parallel()
	limits := options{stall: 5 * time.Minute, buildStall: 30 * time.Minute}
	for name, c := range map[string]struct {
		actions []string
		after   time.Duration // after the last event
		want    string
	}{
		"in time": {[]string{"run TestA"}, 4 * time.Minute, ""},
		"a test": {[]string{"run TestA"}, 5 * time.Minute,
			"no test failed: TestA made no progress for 5m0s"},
		"a build":       {nil, 29 * time.Minute, ""},
		"between tests": {[]string{"run TestA", "pass TestA"}, 29 * time.Minute, ""},
		"a stuck build": {nil, 30 * time.Minute, "no test failed: no package was built for 30m0s"},
		"after failures": {[]string{"fail TestA", "fail TestB", "run TestC"}, 5 * time.Minute,
			"2 tests failed; TestC made no progress for 5m0s"},
		"a slow test": {[]string{"run TestA", "output TestA", "output TestA", "output TestA",
			"output TestA"}, 4 * time.Minute, ""},
		"paused tests": {[]string{"run TestA", "pause TestA", "run TestB", "run TestC"},
			5 * time.Minute, "no test failed: TestB, TestC made no progress for 5m0s"},
		"only paused tests": {[]string{"run TestA", "pause TestA"}, 5 * time.Minute,
			"no test failed: weir/a made no progress for 5m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFakeRun(limits, 1)
			r.handleAll(c.actions...)
			r.at = r.lastEventAt.Add(c.after)
			if got := r.describeStall(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestPrintOutput_LimitsCrashes(t *testing.T) {
	t.Parallel()
	goroutines := strings.Repeat("main.f()\n", 300)
	for name, c := range map[string]struct {
		output  string
		stalled bool
		want    string // DUMP = the path of the file
		isSaved bool
	}{
		"no crash": {"got 1\n" + goroutines, false, "got 1\n" + goroutines, false},
		"a short panic": {"panic: no\n\ngoroutine 1 [running]:\n", false,
			"panic: no\n\ngoroutine 1 [running]:\n", false},
		"a long panic": {"got 1\npanic: no\n" + goroutines, false,
			"got 1\npanic: no\n" + strings.Repeat("main.f()\n", 99) +
				"the goroutines are in DUMP\n", true},
		"a time limit": {"panic: test timed out after 35m0s\n\trunning tests:\n\t\tTestA (2s)\n\t\tTestB/sub (1m1s)\n\n" +
			goroutines, false,
			"no test failed: timeout: the limit of 35m0s was over while these ran: " +
				"TestA (2s), TestB/sub (1m1s)\nthe goroutines are in DUMP\n", true},
		"a stall": {"log\nSIGQUIT: quit\n" + goroutines, true,
			"log\nthe goroutines are in DUMP\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dump := filepath.Join(t.TempDir(), "build", "dump.txt")
			r := newFakeRun(options{dumps: dump}, 1)
			r.isStalled = c.stalled
			r.printOutput(strings.SplitAfter(c.output, "\n"))
			if got := strings.ReplaceAll(r.out.String(), dump, "DUMP"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}

			saved, _ := os.ReadFile(dump) // without a file there is nothing
			if isSaved := strings.HasSuffix(string(saved), goroutines); isSaved != c.isSaved {
				t.Errorf("the file has %d bytes, want a dump: %v", len(saved), c.isSaved)
			}
		})
	}
}
