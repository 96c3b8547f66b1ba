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

// runCPU measures the handler's CPU time per message: the CPU time of the whole process, divided by
// the number of messages. Clients post at full speed, and the CMS answers without delay. The
// baseline is the CPU time of a bare program for the same messages (see floorProgram).
func runCPU(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newWarmRig(ctx, rigOptions{})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	all, used := makeMessages("cpu", r.sizes.cpu, r.sizes.load.keys), cpuTimes{}
	before, err := r.readTransactions(ctx)
	if err != nil {
		return nil, err
	}

	err = addCPUTimes(r, &used, func() error {
		return runProfiled(ctx, r, func() error {
			if err := r.sendMessages(ctx, all, r.sizes.load.clients, r.handlerURLs()...); err !=
				nil {
				return err
			}

			if err := r.awaitDelivered(ctx, len(all)); err != nil {
				return err
			}

			return r.awaitRest(ctx)
		})
	})
	if err != nil {
		return nil, err
	}

	after, err1 := r.readTransactions(ctx)
	if err := errors.Join(err1, r.checkRecord(len(all))); err != nil {
		return nil, err
	}

	transactions := subtractCounts(after, before)["table transact"]
	floor, err := r.measureFloor(ctx, all, transactions)
	if err != nil {
		return nil, err
	}

	each := func(seconds float64) float64 { return seconds * 1000 / float64(len(all)) }

	return []result{newRow("CPU of the handler per message", "ms", each(used.handlers)).limitValue(0.25).
		withNote("%d messages accepted from %d clients and delivered to a CMS that takes no time; each: %s", len(all),
			r.sizes.load.clients, used.perStep(len(all))),
		newRow("CPU of the handler per message, against a bare program", "ms", each(used.handlers)).
			withBaseline(each(floor)).withNote(
			"the same posts, %.3f transactions per message, the same writes",
			transactions/float64(len(all)))}, nil
}

// runProfiled calls "do". If the bench has a folder for profiles, the handlers write CPU profiles
// meanwhile. The handlers must be built by `make profile`: such a handler starts a profile at the
// signal SIGUSR2, and ends the profile at the next SIGUSR2. The signal would end a handler that was
// built in another way.
func runProfiled(ctx context.Context, r *rig, do func() error) error {
	if r.profile == "" {
		return do()
	}

	if err := signalHandlers(r, syscall.SIGUSR2); err != nil {
		return err
	}

	if err := errors.Join(do(), signalHandlers(r, syscall.SIGUSR2)); err != nil {
		return err
	}

	return r.awaitCondition(ctx, readyLimit, "the profiles are written", func() bool {
		files, err := filepath.Glob(filepath.Join(r.profile, "*.pprof"))
		return err == nil && len(files) == len(r.handlerURLs())
	})
}

func signalHandlers(r *rig, s syscall.Signal) error {
	for _, i := range r.host.Status().Instances {
		if i.PID != 0 {
			if err := syscall.Kill(i.PID, s); err != nil {
				return fmt.Errorf("signal to the handler: %w", err)
			}
		}
	}

	return nil
}

// cpuTimes has CPU times in s: of the handlers, of Azurite (storage) and of this process (bench).
// This process runs the clients, the host and the CMS.
type cpuTimes struct{ handlers, storage, bench float64 }

// perStep returns the times divided by n, in ms, as text for a note.
func (e cpuTimes) perStep(n int) string {
	each := func(v float64) float64 { return v * 1000 / float64(n) }
	return fmt.Sprintf("handler %.3f, Azurite %.3f, clients with host and CMS %.3f ms",
		each(e.handlers), each(e.storage), each(e.bench))
}

// addCPUTimes calls "do", and adds to "sum" the CPU times that the processes used during the call.
func addCPUTimes(r *rig, sum *cpuTimes, do func() error) error {
	before, err := readCPUTimes(r)
	if err != nil {
		return err
	}

	failed := do()
	after, err := readCPUTimes(r)
	sum.handlers += after.handlers - before.handlers
	sum.storage += after.storage - before.storage
	sum.bench += after.bench - before.bench

	return errors.Join(failed, err)
}

func readCPUTimes(r *rig) (cpuTimes, error) {
	var e cpuTimes
	for _, i := range r.host.Status().Instances {
		if i.PID == 0 {
			continue
		}

		used, err := readCPUTime(i.PID)
		if err != nil {
			return e, err
		}

		e.handlers += used
	}

	var err1, err2 error
	e.storage, err1 = readCPUTime(r.storage.PID())
	e.bench, err2 = readCPUTime(os.Getpid())

	return e, errors.Join(err1, err2)
}

// ticks is USER_HZ, the number of ticks in a second. The kernel counts CPU times in ticks. On Linux
// for amd64 and arm64 USER_HZ is 100.
const ticks = 100

// readCPUTime returns the CPU time that a process has used so far, in s.
func readCPUTime(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}

	// The process's name, in parentheses, can contain any character, so the fields are counted from
	// the last parenthesis: fields[0] is field 3 of the file. User and system time are fields 14
	// and 15 of the file.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)

	return (user + system) / ticks, errors.Join(err1, err2)
}
