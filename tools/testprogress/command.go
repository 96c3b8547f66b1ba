package main

import (
	"bytes"
	"cmp"
	"fmt"
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

// runCommand runs a command in a process group of its own, so that all of its processes can be ended, and follows its
// events. At the end it prints the numbers of tests and the time.
func (p *progress) runCommand(command []string, signals <-chan os.Signal) error {
	name, packages := describeCommand(command)
	fmt.Fprintf(p.out, "%s, %s\n", name, countPackages(packages))
	before, startedAt := p.counts, p.now()
	p.startCommand(packages)

	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr, cmd.SysProcAttr = p.commandOut, &syscall.SysProcAttr{Setpgid: true}
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reader.Close()
	cmd.Stdout = writer
	err = cmd.Start()
	writer.Close()
	if err != nil {
		return err
	}
	err = p.followCommand(cmd, reader, signals)
	fmt.Fprintf(p.out, "%s: %s in %s\n", name, p.counts.minus(before), p.now().Sub(startedAt).Round(time.Second))
	return err
}

// followCommand follows the events of a started command until it has ended. A stall or a signal ends it early.
func (p *progress) followCommand(cmd *exec.Cmd, reader *os.File, signals <-chan os.Signal) error {
	ticks := time.NewTicker(p.interval)
	defer ticks.Stop()
	checks := time.NewTicker(min(checkInterval, p.stall/4))
	defer checks.Stop()

	group := processGroup(cmd.Process.Pid)
	var processes []int
	var killer *time.Timer
	end := func(signal syscall.Signal) {
		if killer == nil {
			// Listed before the signal: the children of an ended process have another parent.
			processes = listDescendants(int(group))
			killer = time.AfterFunc(p.killAfter, func() {
				group.kill(syscall.SIGKILL, processes)
				reader.Close() // a process that is out of reach may hold the other end
			})
		}
		group.kill(signal, nil)
	}
	err := p.follow(reader, events{ticks.C, checks.C, signals}, end)

	if killer != nil {
		killer.Stop()
		group.kill(syscall.SIGKILL, processes)
	}
	return cmp.Or(err, cmd.Wait())
}

// processGroup is the number of a group of processes.
type processGroup int

// kill sends a signal to the group, and to processes that may have left it. Those that have ended do not matter.
func (g processGroup) kill(signal syscall.Signal, more []int) {
	_ = syscall.Kill(-int(g), signal)
	for _, pid := range more {
		_ = syscall.Kill(pid, signal)
	}
}

// listDescendants returns the processes below a process. Tests start programs in process groups of their own. Without
// /proc it returns none.
func listDescendants(pid int) (found []int) {
	children := map[int][]int{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // fails for a bad pattern only
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}

		// The name, in brackets, can have spaces and brackets: state and parent follow the last bracket.
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

// describeCommand returns the beginning of a command, with the module that it tests, and the number of packages. The
// packages follow the last flag, which has no value of its own.
func describeCommand(command []string) (name string, packages int) {
	name = strings.Join(command[:min(2, len(command))], " ")
	if i := slices.Index(command, "-C"); i >= 0 && i+1 < len(command) {
		name += " -C " + command[i+1]
	}
	for _, arg := range slices.Backward(command) {
		if strings.HasPrefix(arg, "-") {
			return name, packages
		}
		packages++
	}
	return name, 0
}
