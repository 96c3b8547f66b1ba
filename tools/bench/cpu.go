package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// effort is the CPU time of the processes that take part, in s.
type effort struct{ handlers, storage, bench float64 }

// per shows it as ms for each of n steps: where they add up to the cores there are, more
// cannot be had on this machine.
func (e effort) per(n int) string {
	each := func(v float64) float64 { return v * 1000 / float64(n) }
	return fmt.Sprintf("handler %.3f, Azurite %.3f, clients with host and CMS %.3f ms", each(e.handlers), each(e.storage), each(e.bench))
}

// work does something and adds the CPU time it took.
func (r *rig) work(sum *effort, do func() error) error {
	before, err := r.effort()
	if err != nil {
		return err
	}
	failed := do()
	after, err := r.effort()
	sum.handlers += after.handlers - before.handlers
	sum.storage += after.storage - before.storage
	sum.bench += after.bench - before.bench
	return errors.Join(failed, err)
}

func (r *rig) effort() (effort, error) {
	var e effort
	var err1, err2, err3 error
	for _, i := range r.host.Status().Instances {
		if i.PID == 0 {
			continue
		}
		var v float64
		v, err1 = cpuTime(i.PID)
		e.handlers += v
	}
	e.storage, err2 = cpuTime(r.storage.PID())
	e.bench, err3 = cpuTime(os.Getpid())
	return e, errors.Join(err1, err2, err3)
}

// ticks of the kernel's clock in a second: 100 on every Linux there is for amd64 and arm64.
const ticks = 100

// cpuTime gives what a process has used of the CPUs so far, in s.
func cpuTime(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything; user and system time are fields 14 and 15.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticks, errors.Join(err1, err2)
}
