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
	// troubles is how often in a row storage may fail before a lane is given up.
	troubles = 3
	// soon is the longest wait in all for a CMS that may still be at work on what it did
	// not answer, and for whatever else keeps back what is due already.
	soon = 90 * time.Second
	// glance is the shortest wait between two looks at what is kept back.
	glance = 100 * time.Millisecond
)

// Joiner drains a lane and tells how it was left.
type Joiner interface {
	Join(ctx context.Context, lane int) drain.Report
}

// Emptied is what became of one lane.
type Emptied struct {
	Lane    int
	Report  drain.Report
	Done    lane.Counts // messages that became final meanwhile, whoever made them so
	Waiting int64       // messages that are not final
	Due     bool        // some of them could go now
	Err     error       // storage could not be asked
}

// Empty drains a lane until it is idle, or what is left waits for a later time, for a CMS
// that is away, or in another process's hands.
func Empty(ctx context.Context, log Reader, joiner Joiner, number int, now func() time.Time) Emptied {
	e := Emptied{Lane: number}
	before, err := log.Control(ctx, number)
	if err != nil {
		e.Err = err
		return e
	}
	limit := now().Add(soon)
	for failed := 0; failed < troubles; {
		e.Report = joiner.Join(ctx, number)
		if e.Report.Err != nil {
			failed++
			continue
		}
		failed = 0
		// Also when told to end: what was done is to be told.
		after, err := log.Control(context.WithoutCancel(ctx), number)
		if e.Err = err; err != nil {
			return e
		}
		e.take(before, after, now())
		if !e.keptBack(limit) || !clock.Sleep(ctx, max(e.Report.Until.Sub(now()), glance)) || now().After(limit) {
			return e
		}
	}
	e.Err = e.Report.Err
	return e
}

func (e *Emptied) take(before, after lane.Control, now time.Time) {
	a, b := after.Tail.Counts, before.Tail.Counts
	e.Done = lane.Counts{Delivered: a.Delivered - b.Delivered, Dead: a.Dead - b.Dead, Cancelled: a.Cancelled - b.Cancelled, Superseded: a.Superseded - b.Superseded}
	e.Waiting, e.Due = after.Waiting(), after.Work(now)
}

// keptBack says that what is due waits for a short time only.
func (e *Emptied) keptBack(limit time.Time) bool {
	return e.Report.State == drain.Waiting && e.Due && !e.Report.Paused && e.Report.Until.Before(limit)
}

// Left says that something is left that could have gone. What came after the lane had been
// found empty is not.
func (e *Emptied) Left() bool {
	return e.Err != nil || e.Report.State == drain.Working || (e.Due && e.Report.State == drain.Busy)
}

// String is one line, for people.
func (e *Emptied) String() string {
	if e.Err != nil {
		return fmt.Sprintf("lane %d: storage cannot be reached: %v", e.Lane, e.Err)
	}
	parts := []string{e.state()}
	for _, c := range []struct {
		n    int64
		what string
	}{{e.Done.Delivered, "delivered"}, {e.Done.Dead, "dead"}, {e.Done.Cancelled, "cancelled"}, {e.Done.Superseded, "superseded"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return fmt.Sprintf("lane %d: %s", e.Lane, strings.Join(parts, ", "))
}

// State is how a lane was left.
type State string

// The states of a lane that was to be emptied.
const (
	Failed      State = "failed"      // storage could not be asked
	Held        State = "held"        // by another process, with something that could go
	Paused      State = "paused"      // by an operator or the calendar, or the CMS is away
	Waiting     State = "waiting"     // what is left is due later
	Interrupted State = "interrupted" // it was told to end
	Clear       State = "empty"       // but for what came since
)

// State says how the lane was left.
func (e *Emptied) State() State {
	switch {
	case e.Err != nil:
		return Failed
	case e.Due && e.Report.State == drain.Busy:
		return Held
	case e.Report.State == drain.Waiting && (e.Report.Paused || endless(e.Report.Until)):
		return Paused
	case e.Report.State == drain.Waiting:
		return Waiting
	case e.Report.State == drain.Working:
		return Interrupted
	}
	return Clear
}

func (e *Emptied) state() string {
	switch e.State() {
	case Held:
		return fmt.Sprintf("held by another process, %d waiting", e.Waiting)
	case Paused:
		if !e.Report.Paused {
			return fmt.Sprintf("what is left is paused until it is resumed, %d waiting", e.Waiting)
		}
		return fmt.Sprintf("paused %s because %s, %d waiting", moment(e.Report.Until), e.Report.Reason, e.Waiting)
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

// Until is the moment that ends the wait; zero = none does, or it does not wait.
func (e *Emptied) Until() time.Time {
	if s := e.State(); (s != Paused && s != Waiting) || endless(e.Report.Until) {
		return time.Time{}
	}
	return e.Report.Until.UTC()
}

// moment says until when it is paused.
func moment(until time.Time) string {
	if endless(until) {
		return "until it is resumed"
	}
	return "until " + until.UTC().Format(time.RFC3339)
}

// endless says that no moment ends the wait.
func endless(until time.Time) bool { return !until.Before(weir.Forever.Add(-time.Hour)) }
