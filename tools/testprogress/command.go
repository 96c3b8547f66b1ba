package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// checkInterval is the time between two looks for a stall, at most.
const checkInterval = time.Second

// command is a go test, and the state of its packages.
type command struct {
	name      string
	output    io.Reader
	startedAt time.Time
	process   *testProcess // nil in tests of the state

	running  map[string]*packageRun
	builds   map[string][]string // output of builds, by import path
	packages int                 // number of packages; 0 = not known
	ended    int                 // number of packages that have ended
	failures []string            // names of the packages that failed
	counts   counts
}

// addCommand adds a command that has begun to print its events.
func (p *progress) addCommand(name string, packages int, output io.Reader) *command {
	c := &command{name: name, packages: packages, output: output, startedAt: p.now(),
		running: map[string]*packageRun{}, builds: map[string][]string{}}
	p.commands = append(p.commands, c)
	return c
}

// startCommand runs a command in a process group of its own, so that all of its processes can be
// ended.
func (p *progress) startCommand(args []string) error {
	name, packages := describeCommand(args)
	fmt.Fprintf(p.out, "%s, %s\n", name, countPackages(packages))

	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr, cmd.SysProcAttr = p.commandOut, &syscall.SysProcAttr{Setpgid: true}
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}

	cmd.Stdout = writer
	err = cmd.Start()
	writer.Close()

	if err != nil {
		reader.Close()
		return err
	}

	p.addCommand(name, packages, reader).process = &testProcess{cmd: cmd, reader: reader,
		killAfter: p.killAfter}

	return nil
}

// endCommand handles the end of the output of a command, and prints the numbers of tests and the
// time.
func (p *progress) endCommand(c *command, readErr error) {
	err, cpu := cmp.Or(c.result(), readErr), ""
	if c.process != nil {
		err = cmp.Or(err, c.process.wait())
		cpu = ", cpu " + readCPU(c.process.cmd.ProcessState).Round(time.Second).String()
	}

	fmt.Fprintf(p.out, "%s: %s in %s%s\n", c.name, c.counts,
		p.now().Sub(c.startedAt).Round(time.Second), cpu)
	if err != nil {
		p.reportError(err)
	}
}

// testProcess is the process of a command, and all that it has started.
type testProcess struct {
	cmd       *exec.Cmd
	reader    *os.File
	killAfter time.Duration

	killer      *time.Timer // nil before the first signal
	descendants []int
}

// end sends a signal to all processes of the group, and kills all that are left some time after the
// first signal.
func (t *testProcess) end(signal syscall.Signal) {
	group := processGroup(t.cmd.Process.Pid)
	if t.killer == nil {
		// Listed before the signal: the children of an ended process have another parent.
		t.descendants = listDescendants(int(group))
		t.killer = time.AfterFunc(t.killAfter, func() {
			group.kill(syscall.SIGKILL, t.descendants)
			t.reader.Close() // a process that is out of reach may hold the other end
		})
	}

	group.kill(signal, nil)
}

// wait waits for a process whose output has ended. After a signal it kills what is left.
func (t *testProcess) wait() error {
	if t.killer != nil {
		t.killer.Stop()
		processGroup(t.cmd.Process.Pid).kill(syscall.SIGKILL, t.descendants)
	}
	t.reader.Close()
	return t.cmd.Wait()
}

// processGroup is the number of a group of processes.
type processGroup int

// kill sends a signal to the group, and to processes that may have left it. Those that have ended
// do not matter.
func (g processGroup) kill(signal syscall.Signal, more []int) {
	_ = syscall.Kill(-int(g), signal)
	for _, pid := range more {
		_ = syscall.Kill(pid, signal)
	}
}

// listDescendants returns the processes below a process. Tests start programs in process groups of
// their own. Without /proc it returns none.
func listDescendants(pid int) (found []int) {
	children := map[int][]int{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // fails for a bad pattern only
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}

		// The name, in brackets, can have spaces and brackets: state and parent follow the last
		// bracket.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if len(fields) > 1 {
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], child)
		}
	}

	for next := children[pid]; len(next) > 0; next = next[1:] {
		found = append(found, next[0])
		next = append(next, children[next[0]]...)
	}

	return found
}

// describeCommand returns the beginning of a command, with the module that it tests and the flag of
// the race detector, and the number of packages. The packages follow the last flag, which has no
// value of its own. A program that runs go, such as nice, has no part in the name.
func describeCommand(command []string) (name string, packages int) {
	command = command[max(0, slices.Index(command, "go")):]
	name = strings.Join(command[:min(2, len(command))], " ")
	if i := slices.Index(command, "-C"); i >= 0 && i+1 < len(command) {
		name += " -C " + command[i+1]
	}

	if slices.Contains(command, "-race") {
		name += " -race"
	}

	for _, arg := range slices.Backward(command) {
		if strings.HasPrefix(arg, "-") {
			return name, packages
		}
		packages++
	}

	return name, 0
}
