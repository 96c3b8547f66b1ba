package poll

import (
	"context"
	"fmt"
	"strings"
	"time"

	"weir/internal/clock"
	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// maxStorageFailures is the number of consecutive failed drains after which DrainLane gives up.
	maxStorageFailures = 3
	// maxShortWait limits how long DrainLane waits. Sometimes due messages cannot be sent yet, for
	// example because the settle time has not passed. Then DrainLane waits, but only if the wait
	// ends within maxShortWait after the start of DrainLane.
	maxShortWait = 90 * time.Second
	// minRecheck is the shortest wait before DrainLane drains the lane again.
	minRecheck = 100 * time.Millisecond
)

// Joiner drains a lane, and returns the result.
type Joiner interface {
	Join(ctx context.Context, lane int) drain.Report
}

// DrainResult is the result of draining one lane.
type DrainResult struct {
	Lane    int
	Report  drain.Report
	Done    lane.Counts // messages that became final during DrainLane, by any process
	Waiting int64       // messages that are not final
	// a holder has work now: a message is due, or a request is open; ignores pauses
	Due bool
	Err error // error of storage; nil = none
}

// DrainLane drains a lane until the lane is empty, or no message can be sent now. The messages can
// be due later, the lane can be paused, the CMS can be unavailable, or another process can hold the
// lane. DrainLane also returns if storage fails or ctx ends.
func DrainLane(ctx context.Context, log Reader, joiner Joiner, number int,
	now func() time.Time) DrainResult {
	e := DrainResult{Lane: number}
	before, err := log.ReadControl(ctx, number)
	if err != nil {
		e.Err = err
		return e
	}

	limit := now().Add(maxShortWait)
	for failed := 0; failed < maxStorageFailures; {
		e.Report = joiner.Join(ctx, number)
		if e.Report.Err != nil {
			failed++
			continue
		}

		failed = 0

		// This read must succeed even if ctx has ended, because the result needs the counts.
		after, err := log.ReadControl(context.WithoutCancel(ctx), number)
		if e.Err = err; err != nil {
			return e
		}

		e.recordCounts(before, after, now())

		if !e.isBlockedBriefly(limit) ||
			!clock.Sleep(ctx, max(e.Report.Until.Sub(now()), minRecheck)) ||
			now().After(limit) {
			return e
		}
	}

	e.Err = e.Report.Err

	return e
}

func (e *DrainResult) recordCounts(before, after lane.Control, now time.Time) {
	a, b := after.Tail.Counts, before.Tail.Counts
	e.Done = lane.Counts{Delivered: a.Delivered - b.Delivered, Dead: a.Dead - b.Dead,
		Cancelled: a.Cancelled - b.Cancelled, Superseded: a.Superseded - b.Superseded,
		Discarded: a.Discarded - b.Discarded}
	e.Waiting, e.Due = after.WaitingCount(), after.HasWork(now)
}

// isBlockedBriefly reports whether due messages cannot be sent now, but probably can before the
// time "limit".
func (e *DrainResult) isBlockedBriefly(limit time.Time) bool {
	return e.Report.State == drain.Waiting && e.Due && !e.Report.Paused &&
		e.Report.Until.Before(limit)
}

// HasWorkLeft reports whether DrainLane ended too early: storage failed, this process was
// interrupted, or another process holds the lane, which has work now. Messages that arrived after
// the lane was empty do not count.
func (e *DrainResult) HasWorkLeft() bool {
	return e.Err != nil || e.Report.State == drain.Working ||
		(e.Due && e.Report.State == drain.Busy)
}

// String returns the result as one line for a person.
func (e *DrainResult) String() string {
	if e.Err != nil {
		return fmt.Sprintf("lane %d: storage cannot be reached: %v", e.Lane, e.Err)
	}

	parts := []string{e.describeState()}
	for _, c := range []struct {
		n    int64
		what string
	}{{e.Done.Delivered, "delivered"}, {e.Done.Dead, "dead"}, {e.Done.Cancelled, "cancelled"},
		{e.Done.Superseded, "superseded"}, {e.Done.Discarded, "discarded"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}

	return fmt.Sprintf("lane %d: %s", e.Lane, strings.Join(parts, ", "))
}

// State is the state in which DrainLane left a lane.
type State string

// The states in which DrainLane can leave a lane.
const (
	Failed State = "failed" // storage failed
	Held   State = "held"   // another process holds the lane, which has work now
	// paused by an operator (lane or keys), a closed calendar or an unavailable CMS
	Paused      State = "paused"
	Waiting     State = "waiting"     // the next message can be sent later
	Interrupted State = "interrupted" // the process got a signal to end
	Clear       State = "empty"       // no work was left; messages can have arrived afterwards
)

// State returns the state in which DrainLane left the lane.
func (e *DrainResult) State() State {
	switch {
	case e.Err != nil:
		return Failed
	case e.Due && e.Report.State == drain.Busy:
		return Held
	case e.Report.State == drain.Waiting && (e.Report.Paused || isEndless(e.Report.Until)):
		return Paused
	case e.Report.State == drain.Waiting:
		return Waiting
	case e.Report.State == drain.Working:
		return Interrupted
	}

	return Clear
}

func (e *DrainResult) describeState() string {
	switch e.State() {
	case Held:
		return fmt.Sprintf("held by another process, %d waiting", e.Waiting)
	case Paused:
		if !e.Report.Paused {
			return fmt.Sprintf("the rest is paused until it is resumed, %d waiting", e.Waiting)
		}
		return fmt.Sprintf("paused %s because %s, %d waiting", describeUntil(e.Report.Until),
			e.Report.Reason, e.Waiting)

	case Waiting:
		return fmt.Sprintf("the next is due at %s, %d waiting",
			e.Report.Until.UTC().Format(time.RFC3339), e.Waiting)
	case Interrupted:
		return fmt.Sprintf("told to end before it was empty, %d waiting", e.Waiting)
	}

	if e.Waiting > 0 {
		return fmt.Sprintf("emptied, %d came since", e.Waiting)
	}

	return "empty"
}

// Until returns the end of the wait in the states Paused and Waiting. It returns zero in other
// states, and if the wait has no end.
func (e *DrainResult) Until() time.Time {
	if s := e.State(); (s != Paused && s != Waiting) || isEndless(e.Report.Until) {
		return time.Time{}
	}
	return e.Report.Until.UTC()
}

func describeUntil(until time.Time) string {
	if isEndless(until) {
		return "until it is resumed"
	}
	return "until " + until.UTC().Format(time.RFC3339)
}

// isEndless reports whether a wait has no end. A drain wakes up a little before a due time
// (lane.DueLead), so an endless wait can end a little before weir.Forever.
func isEndless(until time.Time) bool { return !until.Before(weir.Forever.Add(-time.Hour)) }
