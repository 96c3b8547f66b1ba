package overview

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// Outlook is what a waiting message can expect. What is zero is not known.
type Outlook struct {
	Position   int       // in the line of its key, from 1
	ExpectedAt time.Time // about when it is sent
	WaitsFor   string    // in words
}

const (
	// linePages bounds what is read of a key's line, and outlookRows of the log before a
	// message.
	linePages   = 2
	outlookRows = 1000
	// lastYear is the last one that can be told: RFC 3339 has four digits for it.
	lastYear = 9999
)

// Outlook tells what a message waits for, in four queries at most. A final one, and one
// whose epoch is over, waits for nothing.
func (o *Overview) Outlook(ctx context.Context, st weir.Status) (Outlook, error) {
	id := st.Message.ID
	if st.Stage.Final() || id.Epoch != o.Store.Epoch {
		return Outlook{}, nil
	}
	c, err := o.Store.Control(ctx, id.Lane)
	if err != nil {
		return Outlook{}, readError("outlook", err)
	}
	v := &vista{Overview: o, st: st, control: c, now: o.Now()}
	if st.Stage != weir.Scheduled {
		if err := v.look(ctx); err != nil {
			return Outlook{}, readError("outlook", err)
		}
	}
	return Outlook{Position: v.position, ExpectedAt: v.expectedAt(ctx), WaitsFor: v.waitsFor()}, nil
}

// vista is what is seen from a waiting message's place.
type vista struct {
	*Overview
	st       weir.Status
	control  lane.Control
	now      time.Time
	position int         // in its key's line; 0 = not known
	head     weir.Status // the first of that line, where that is another
}

// look finds the message's position: the lines were taken from the log earlier, so they go
// before it.
func (v *vista) look(ctx context.Context) error {
	id := v.st.Message.ID
	pages := 1
	if v.st.Held {
		pages = linePages // where the log need not be read
	}
	line, whole, err := v.Store.Line(ctx, id.Lane, lane.BlockOf(&v.st.Message), pages)
	if err != nil {
		return err
	}
	if v.st.Held {
		for i, h := range line {
			if h.Seq == id.Seq {
				v.position = i + 1
			}
		}
		return v.readHead(ctx, line)
	}
	if err := v.readHead(ctx, line); err != nil || !whole {
		return err
	}
	return v.lookInLog(ctx, len(line))
}

// readHead reads the first of a line.
func (v *vista) readHead(ctx context.Context, line []lane.Held) error {
	if len(line) == 0 || line[0].Seq == v.st.Message.ID.Seq {
		return nil
	}
	entries, _, err := v.Store.ReadMany(ctx, v.st.Message.ID.Lane, []int64{line[0].Seq})
	for _, e := range entries {
		v.head = e.Status()
	}
	return err
}

// lookInLog counts what the log has of the key before the message.
func (v *vista) lookInLog(ctx context.Context, held int) error {
	id, cursor := v.st.Message.ID, v.control.Tail.Cursor
	if id.Seq < cursor || id.Seq-cursor > outlookRows {
		return nil
	}
	v.position = held + 1
	if v.st.Message.Skip || id.Seq == cursor {
		return nil
	}
	entries, err := v.Store.ScanLog(ctx, id.Lane, cursor, int(id.Seq-cursor))
	for _, e := range entries {
		if e.Seq() >= id.Seq || e.Message.Key != v.st.Message.Key || e.Stage != weir.Queued || e.Held {
			continue
		}
		v.position++
		if v.head.Message.ID.IsZero() {
			v.head = e.Status()
		}
	}
	return err
}

// expectedAt is not known where somebody has to act first, or nobody knows how fast it goes,
// or it lies past the last year.
func (v *vista) expectedAt(ctx context.Context) time.Time {
	at := later(v.now, later(v.st.NextAttemptAt, v.head.NextAttemptAt))
	if v.st.Stage == weir.Scheduled {
		at = later(v.now, v.st.Message.DueAt)
	}
	if p, ok := keyPause(v.control, v.st.Message.Key, v.now); ok {
		if p.Until.IsZero() {
			return time.Time{}
		}
		at = later(at, p.Until)
	}
	for _, h := range v.halts(v.control, v.now) {
		if h.Until.IsZero() {
			return time.Time{}
		}
		at = later(at, h.Until)
	}
	if v.st.Stage != weir.Scheduled { // what goes before it has to wait for all that, too
		if ahead := v.ahead(); ahead > 0 {
			pace := v.pace(ctx, v.st.Message.ID.Lane)
			if !pace.Known {
				return time.Time{}
			}
			at = at.Add(minutes(float64(ahead) / pace.PerMinute))
		}
	}
	if closed, _, until := v.closed(at); closed {
		at = later(at, until)
	}
	if at = at.UTC(); at.Year() > lastYear {
		return time.Time{}
	}
	return at
}

// ahead is how many messages go before it, about: those of its line, and, where it stands in
// the log, all of the lane's.
func (v *vista) ahead() int64 {
	ahead := int64(max(v.position-1, 0))
	if !v.st.Held {
		ahead = max(ahead, v.st.Message.ID.Seq-v.control.Tail.Cursor)
	}
	return ahead
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// waitsFor names the first thing that has to happen.
func (v *vista) waitsFor() string {
	due := v.st.Message.DueAt
	if v.st.Stage == weir.Scheduled && due.After(v.now) {
		return "its time, " + clock(due)
	}
	if halt := v.halt(v.control, v.now); halt.By != "" {
		return halt.words()
	}
	if p, ok := keyPause(v.control, v.st.Message.Key, v.now); ok {
		return "its key is paused" + because(p.Reason, p.Until)
	}
	switch {
	case v.head.NextAttemptAt.After(v.now):
		return "behind " + v.head.Message.Public().String() + " of its key, which is retried at " + clock(v.head.NextAttemptAt)
	case !v.head.Message.ID.IsZero():
		return "behind " + v.head.Message.Public().String() + " of its key"
	case v.st.NextAttemptAt.After(v.now):
		return "its next attempt at " + clock(v.st.NextAttemptAt)
	case v.control.Tail.SettleUntil.After(v.now):
		return "the CMS may still be at work on what it did not answer, until " + clock(v.control.Tail.SettleUntil)
	case v.ahead() > 0:
		return "its turn in the lane, behind about " + count(v.ahead(), "message", "messages")
	}
	return "its turn in the lane"
}
