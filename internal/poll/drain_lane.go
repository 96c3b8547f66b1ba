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
	// DrainLane gives up after maxStorageFailures consecutive failures of storage.
	maxStorageFailures = 3
	// maxShortWait bounds the sum of the short waits. In a short wait, due messages cannot be sent for a short time,
	// for example until the settle time is over.
	maxShortWait = 90 * time.Second
	// minRecheck is the shortest wait before the lane is drained again.
	minRecheck = 100 * time.Millisecond
)

// Joiner drains a lane and returns its state afterwards.
type Joiner interface {
	Join(ctx context.Context, lane int) drain.Report
}

// DrainResult is the result of draining one lane.
type DrainResult struct {
	Lane    int
	Report  drain.Report
	Done    lane.Counts // messages that any process made final while DrainLane ran
	Waiting int64       // messages that are not final
	Due     bool        // there is work for a holder now: a message could be sent, or a request is open
	Err     error       // error of storage; nil = none
}

// DrainLane drains a lane until the lane is empty, or until all its messages have to wait: for a later time,
// for an unavailable CMS, or for another process that holds the lane. It also returns if storage fails, or if ctx
// ends.
func DrainLane(ctx context.Context, log Reader, joiner Joiner, number int, now func() time.Time) DrainResult {
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
		// This read must succeed even after ctx has ended, so that the result has the counts.
		after, err := log.ReadControl(context.WithoutCancel(ctx), number)
		if e.Err = err; err != nil {
			return e
		}
		e.recordCounts(before, after, now())
		if !e.isBlockedBriefly(limit) || !clock.Sleep(ctx, max(e.Report.Until.Sub(now()), minRecheck)) ||
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

// isBlockedBriefly reports whether due messages cannot be sent now, but may be sent before the time "limit".
func (e *DrainResult) isBlockedBriefly(limit time.Time) bool {
	return e.Report.State == drain.Waiting && e.Due && !e.Report.Paused && e.Report.Until.Before(limit)
}

// HasWorkLeft reports whether work is left that could have been done, or storage failed. It ignores messages that
// arrived after the lane was empty.
func (e *DrainResult) HasWorkLeft() bool {
	return e.Err != nil || e.Report.State == drain.Working || (e.Due && e.Report.State == drain.Busy)
}

// String returns one line for a person.
func (e *DrainResult) String() string {
	if e.Err != nil {
		return fmt.Sprintf("lane %d: storage cannot be reached: %v", e.Lane, e.Err)
	}
	parts := []string{e.describeState()}
	for _, c := range []struct {
		n    int64
		what string
	}{{e.Done.Delivered, "delivered"}, {e.Done.Dead, "dead"}, {e.Done.Cancelled, "cancelled"}, {e.Done.Superseded,
		"superseded"}, {e.Done.Discarded, "discarded"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return fmt.Sprintf("lane %d: %s", e.Lane, strings.Join(parts, ", "))
}

// State is the state in which a lane was left.
type State string

// The states in which DrainLane can leave a lane.
const (
	Failed      State = "failed"      // storage failed
	Held        State = "held"        // another process holds the lane, and a message could be sent
	Paused      State = "paused"      // an operator or the calendar paused it, or the CMS is unavailable
	Waiting     State = "waiting"     // all messages are due later
	Interrupted State = "interrupted" // the process got a signal to end
	Clear       State = "empty"       // empty, except for messages that arrived afterwards
)

// State returns the state in which the lane was left.
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
		return fmt.Sprintf("paused %s because %s, %d waiting", describeUntil(e.Report.Until), e.Report.Reason,
			e.Waiting)
	case Waiting:
		return fmt.Sprintf("the next is due at %s, %d waiting", e.Report.Until.UTC().Format(time.RFC3339), e.Waiting)
	case Interrupted:
		return fmt.Sprintf("told to end before it was empty, %d waiting", e.Waiting)
	}
	if e.Waiting > 0 {
		return fmt.Sprintf("emptied, %d came since", e.Waiting)
	}
	return "empty"
}

// Until returns the end of the wait; zero if the wait has no end, or the lane does not wait.
func (e *DrainResult) Until() time.Time {
	if s := e.State(); (s != Paused && s != Waiting) || isEndless(e.Report.Until) {
		return time.Time{}
	}
	return e.Report.Until.UTC()
}

// describeUntil describes the end of a pause.
func describeUntil(until time.Time) string {
	if isEndless(until) {
		return "until it is resumed"
	}
	return "until " + until.UTC().Format(time.RFC3339)
}

// isEndless reports whether a wait has no end.
func isEndless(until time.Time) bool { return !until.Before(weir.Forever.Add(-time.Hour)) }
