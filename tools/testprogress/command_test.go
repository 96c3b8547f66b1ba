package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hanging is a test that starts a program in a process group of its own, prints its number, and
// hangs.
const hanging = `package hang

import (
	"os/exec"
	"syscall"
	"testing"
)

func TestHangs(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Log("sleeper", cmd.Process.Pid)
	cmd.Wait()
}
`

// writeHanging writes a module with the test that hangs, and a package that passes.
func writeHanging(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":            "module hanging\n\ngo 1.26.0\n",
		"hang/hang_test.go": hanging,
		"pass/pass_test.go": "package pass\n\nimport \"testing\"\n\nfunc TestPasses(t *testing.T) {}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

func (r *endedRun) run(t *testing.T, o options, packages []string, signals chan os.Signal) {
	t.Helper()
	dir := writeHanging(t)
	r.dump = filepath.Join(dir, "build", "dump.txt")
	o.interval, o.buildStall, o.dumps = time.Hour, time.Hour, r.dump
	o.killAfter, o.commandOut = time.Minute, io.Discard

	reader, writer := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		var commands [][]string
		for _, name := range packages {
			commands = append(commands,
				[]string{"go", "test", "-C", dir, "-count=1", "-json", name})
		}

		o.verbose = true
		ended <- runAll(newProgress(writer, time.Now, o), commands, signals)
		writer.Close()
	}()

	for lines := bufio.NewScanner(reader); lines.Scan(); {
		r.lines = append(r.lines, lines.Text())
		if _, number, isSleeper := strings.Cut(lines.Text(), "sleeper "); isSleeper {
			pid, _ := strconv.Atoi(number)
			r.sleepers = append(r.sleepers, pid)
			if len(r.sleepers) == 1 && signals != nil {
				signals <- os.Interrupt
			}
		}
	}

	r.code = <-ended
}

// endedRun is a run of the tests that writeHanging writes.
type endedRun struct {
	lines    []string
	code     int
	sleepers []int // numbers of the processes that the hanging tests started
	dump     string
}

// checkEnd checks the exit code and the last line, and that no process is left.
func (r *endedRun) checkEnd(t *testing.T, code int, last string) {
	t.Helper()
	if r.code != code || r.lines[len(r.lines)-1] != last {
		t.Errorf("got code %d and\n%s\nwant code %d and the last line %q", r.code,
			strings.Join(r.lines, "\n"), code, last)
	}

	if len(r.sleepers) == 0 {
		t.Fatalf("no hanging test started:\n%s", strings.Join(r.lines, "\n"))
	}

	looks := time.NewTicker(10 * time.Millisecond)
	defer looks.Stop()
	for slices.ContainsFunc(r.sleepers, isAlive) {
		<-looks.C
	}
}

// isAlive reports whether a process runs. One that has ended may wait for its parent, which is
// init.
func isAlive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func TestRunAll_CountsAllCommands(t *testing.T) {
	t.Parallel()
	var r endedRun
	r.run(t, options{stall: time.Hour}, []string{"./pass", "./pass"}, nil)

	if last := r.lines[len(r.lines)-1]; r.code != 0 ||
		last != "total 2 passed, 0 failed, 0 skipped" {
		t.Errorf("got code %d and\n%s", r.code, strings.Join(r.lines, "\n"))
	}
}

// Each command ends only after the other has started.
func TestRunAll_RunsCommandsAtTheSameTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var commands [][]string
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		commands = append(commands, []string{"sh", "-c", fmt.Sprintf(`cd %q && touch %s
			until test -e %s; do sleep 0.01; done
			echo '{"Action":"skip","Package":"weir/%s"}'`, dir, names[0], names[1], names[0])})
	}

	p := newProgress(io.Discard, time.Now,
		options{interval: time.Hour, stall: time.Hour, buildStall: time.Hour,
			commandOut: io.Discard})
	if code := runAll(p, commands, nil); code != 0 {
		t.Errorf("got code %d, want 0", code)
	}
}

func TestRunAll_EndsAStalledRun(t *testing.T) {
	t.Parallel()
	var r endedRun
	r.run(t, options{stall: 2 * time.Second}, []string{"./hang", "./hang"}, nil)
	r.checkEnd(t, 1, "total 0 passed, 0 failed, 0 skipped")

	for _, want := range []string{"no test failed: TestHangs, TestHangs made no progress for 2s",
		"the goroutines are in " + r.dump, "testprogress: 1 of 1 packages failed: hanging/hang"} {
		if !slices.Contains(r.lines, want) {
			t.Errorf("got\n%s\nwant the line %q", strings.Join(r.lines, "\n"), want)
		}
	}

	if dump, err := os.ReadFile(r.dump); err != nil ||
		!strings.Contains(string(dump), "hang.TestHangs(") {
		t.Errorf("read the dump: %v, got %.2000s, want the goroutine of the test", err, dump)
	}
}

func TestRunAll_EndsAllProcessesAfterAnInterrupt(t *testing.T) {
	t.Parallel()
	var r endedRun
	r.run(t, options{stall: time.Hour}, []string{"./hang", "./hang"}, make(chan os.Signal, 1))
	r.checkEnd(t, 130, "total 0 passed, 0 failed, 0 skipped")
}

// A process that ignores signals is killed, and so is one that holds the output.
func TestRunAll_KillsWhatIgnoresSignals(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal, 1)
	p := newProgress(io.Discard, time.Now,
		options{interval: time.Hour, stall: time.Hour, buildStall: time.Hour,
			killAfter: 50 * time.Millisecond, commandOut: io.Discard})
	signals <- syscall.SIGTERM
	stubborn := []string{"sh", "-c", `trap "" INT TERM; while :; do sleep 1; done`}
	if code := runAll(p, [][]string{stubborn, stubborn}, signals); code != 130 || !p.hasFailed {
		t.Errorf("got code %d, failed: %v, of commands that were killed, want 130 and true", code,
			p.hasFailed)
	}
}

func TestDescribeCommand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"go test -C tools -race -timeout 0 -json weir/a weir/b": "go test -C tools -race 2",
		"go test -json weir/a":           "go test 1",
		"nice -n 4 go test -json weir/a": "go test 1",
		"go":                             "go 0",
	} {
		name, packages := describeCommand(strings.Fields(text))
		if got := fmt.Sprint(name, " ", packages); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestSplitCommands(t *testing.T) {
	t.Parallel()
	got := fmt.Sprint(splitCommands([]string{"--", "go", "test", "a", "--", "--", "go", "test", "b"}))
	if want := "[[go test a] [go test b]]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
