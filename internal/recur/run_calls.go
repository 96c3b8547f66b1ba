package recur

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// runCall is a call of Run. A repeat of the call has the same number and the same time, so it makes
// the same message.
type runCall struct {
	id  string // see weir.CallOf; "" = the call has no id
	run int64
	at  time.Time
}

// maxCalls is the number of calls that a schedule remembers. The host repeats a call within about
// two seconds.
const maxCalls = 8

// name returns the part of the message's idempotency key that names the call.
func (c runCall) name() string {
	if c.id != "" {
		return "call-" + c.id
	}
	return fmt.Sprintf("run-%d", c.run)
}

// reserveRun returns the call that the context names. If the schedule does not know the call,
// reserveRun gives it a number and stores it, so that no other run can have the number.
func (r *Runner) reserveRun(ctx context.Context, s *Schedule) (runCall, error) {
	id := weir.CallOf(ctx)
	if known, isKnown := findCall(s.Calls, id); isKnown {
		return known, nil
	}

	s.Runs++
	call := runCall{id: id, run: s.Runs, at: r.cfg.Now().UTC().Truncate(time.Microsecond)}
	if id != "" {
		s.Calls = addCall(s.Calls, call)
	}

	return call, r.cfg.Store.writeState(ctx, s)
}

// addCall returns the stored form of calls with one more, and without the oldest if there are too
// many. Each call is a line with its id, its number and its time.
func addCall(calls string, c runCall) string {
	lines := strings.Split(strings.TrimSpace(calls), "\n")
	lines = append(lines, fmt.Sprintf("%s %d %d", c.id, c.run, c.at.UnixMicro()))
	return strings.TrimSpace(strings.Join(lines[max(0, len(lines)-maxCalls):], "\n"))
}

func findCall(calls, id string) (runCall, bool) {
	if id == "" {
		return runCall{}, false
	}

	for line := range strings.SplitSeq(calls, "\n") {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != id {
			continue
		}

		run, err := strconv.ParseInt(fields[1], 10, 64)
		at, timeErr := strconv.ParseInt(fields[2], 10, 64)
		if err == nil && timeErr == nil {
			return runCall{id: id, run: run, at: time.UnixMicro(at).UTC()}, true
		}
	}

	return runCall{}, false
}
