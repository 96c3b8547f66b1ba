package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// handlerCPU measures the handler's CPU time for a message that is accepted and delivered, both
// at full speed: the whole time of its process.
func handlerCPU(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newRig(ctx, setup{})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	all, used := messages("cpu", r.sizes.cpu, r.sizes.keys), effort{}
	err = r.work(&used, func() error {
		return r.profiled(ctx, func() error {
			if err := r.send(ctx, all, r.sizes.clients, r.direct()...); err != nil {
				return err
			}
			if err := r.delivered(ctx, len(all)); err != nil {
				return err
			}
			return r.atRest(ctx, burstLimit)
		})
	})
	if err != nil {
		return nil, err
	}
	return []result{measured("CPU of the handler per message", "ms", used.handlers*1000/float64(len(all))).atMost(0.25).
		noted("%d messages accepted from %d clients and delivered to a CMS that takes no time; each: %s", len(all), r.sizes.clients, used.per(len(all)))}, r.clean(len(all))
}

// profiled lets the handlers write profiles while do runs, if profiles are asked for. Only
// handlers that make profile has built know the signal.
func (r *rig) profiled(ctx context.Context, do func() error) error {
	if r.profile == "" {
		return do()
	}
	if err := r.signal(syscall.SIGUSR2); err != nil {
		return err
	}
	if err := errors.Join(do(), r.signal(syscall.SIGUSR2)); err != nil {
		return err
	}
	return r.until(ctx, readyLimit, "the profiles are written", func() bool {
		files, err := filepath.Glob(filepath.Join(r.profile, "*.pprof"))
		return err == nil && len(files) == len(r.direct())
	})
}

func (r *rig) signal(s syscall.Signal) error {
	for _, i := range r.host.Status().Instances {
		if i.PID != 0 {
			if err := syscall.Kill(i.PID, s); err != nil {
				return fmt.Errorf("signal to the handler: %w", err)
			}
		}
	}
	return nil
}

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
