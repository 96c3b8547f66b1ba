package overview

import (
	"context"
	"fmt"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/weir"
)

// Forecast is the forecast of a waiting message. A field is zero if its value is not known.
type Forecast struct {
	Position   int       // position among the key's waiting messages that are not scheduled, from 1
	ExpectedAt time.Time // estimated time at which the message is sent
	WaitsFor   string    // what the message waits for, as a text for users
}

const (
	// A forecast reads at most maxQueuePages pages of a key's queue. It reads the log only if the
	// message's sequence number is at most maxForecastRows above the lane's cursor.
	maxQueuePages   = 2
	maxForecastRows = 1000
	// maxYear is the last year that RFC 3339 can express.
	maxYear = 9999
)

// Forecast returns the forecast of a message, with at most four queries of the lane. A final
// message and a message of an earlier epoch have the zero Forecast.
func (o *Overview) Forecast(ctx context.Context, st weir.Status) (Forecast, error) {
	id := st.Message.ID
	if st.Stage.Final() || id.Epoch != o.Store.Epoch {
		return Forecast{}, nil
	}

	c, err := o.Store.ReadControl(ctx, id.Lane)
	if err != nil {
		return Forecast{}, readError("outlook", err)
	}

	v := &forecaster{Overview: o, st: st, control: c, now: o.Now()}
	if st.Stage != weir.Scheduled {
		if err := v.findPosition(ctx); err != nil {
			return Forecast{}, readError("outlook", err)
		}
	}

	return Forecast{Position: v.position, ExpectedAt: v.estimateSendTime(ctx),
		WaitsFor: v.describeWait()}, nil
}

// forecaster collects the state on which the forecast of one message depends.
type forecaster struct {
	*Overview
	st       weir.Status
	control  lane.Control
	now      time.Time
	position int         // Forecast.Position; 0 = not known
	first    weir.Status // key's message at position 1; zero = not known, or st is that message
}

// findPosition finds the message's position. The holder sends a key's held messages before the
// key's messages in the log.
func (v *forecaster) findPosition(ctx context.Context) error {
	id := v.st.Message.ID
	pages := 1
	if v.st.Held {
		// a held message needs no query of the log, so one more page is affordable
		pages = maxQueuePages
	}

	line, whole, err := lists.Reader{Store: v.Store}.ReadKeyQueue(ctx, id.Lane,
		v.Store.BlockIDOf(&v.st.Message), pages)
	if err != nil {
		return err
	}

	if v.st.Held {
		for i, h := range line {
			if h.Seq == id.Seq {
				v.position = i + 1
			}
		}
		return v.readFirst(ctx, line)
	}

	if err := v.readFirst(ctx, line); err != nil || !whole {
		return err
	}

	return v.countInLog(ctx, len(line))
}

// readFirst reads the first message of the key's queue into v.first. If the forecast is for this
// first message, readFirst reads nothing.
func (v *forecaster) readFirst(ctx context.Context, line []lane.HeldMessage) error {
	if len(line) == 0 || line[0].Seq == v.st.Message.ID.Seq {
		return nil
	}

	entries, _, err := v.Store.ReadMany(ctx, v.st.Message.ID.Lane, []int64{line[0].Seq})
	for _, e := range entries {
		v.first = e.Status()
	}

	return err
}

// countInLog sets v.position for a message that is in the log and not held. The argument "held" is
// the number of held messages of its key; they have lower positions. The earlier messages of its
// key in the log have lower positions, too. countInLog does not count these earlier messages if the
// message has Skip ("onFailure: skip").
func (v *forecaster) countInLog(ctx context.Context, held int) error {
	id, cursor := v.st.Message.ID, v.control.Tail.Cursor
	if id.Seq < cursor || id.Seq-cursor > maxForecastRows {
		return nil
	}

	v.position = held + 1
	if v.st.Message.Skip || id.Seq == cursor {
		return nil
	}

	key := v.Store.KeyHash(v.st.Message.Key)
	entries, err := v.Store.ScanLog(ctx, id.Lane, cursor, int(id.Seq-cursor))
	for _, e := range entries {
		if e.Seq() >= id.Seq || e.KeyHash() != key || e.Stage != weir.Queued || e.IsHeld {
			continue
		}

		v.position++
		if v.first.Message.ID.IsZero() {
			v.first = e.Status()
		}
	}

	return err
}

// estimateSendTime returns the time at which the message will probably be sent. It returns the zero
// time in these cases:
//   - An operator has to end a pause first.
//   - The settings lack the contract of the message, or of a message of its key that goes first.
//   - A brake is closed for the message, or for a message of its key that goes first.
//   - Other messages are sent first, and the lane's pace is not known.
//   - The time is after maxYear.
func (v *forecaster) estimateSendTime(ctx context.Context) time.Time {
	if v.isMissing(v.st) || v.isMissing(v.first) || v.brakeOf(v.st) != nil ||
		v.brakeOf(v.first) != nil {
		return time.Time{}
	}

	at := clock.Later(v.now, clock.Later(v.st.NextAttemptAt, v.first.NextAttemptAt))
	if v.st.Stage == weir.Scheduled {
		at = clock.Later(v.now, v.st.Message.DueAt)
	}

	if p, ok := v.findKeyPause(); ok {
		if p.Until.IsZero() {
			return time.Time{}
		}
		at = clock.Later(at, p.Until)
	}

	for _, h := range v.pauseCauses(v.control, v.now) {
		if h.Until.IsZero() {
			return time.Time{}
		}
		at = clock.Later(at, h.Until)
	}

	// The messages that are sent first also wait for the end of the pauses. So the time for sending
	// them is added to the end of the pauses.
	if v.st.Stage != weir.Scheduled {
		if ahead := v.messagesAhead(); ahead > 0 {
			pace := v.readPace(ctx, v.st.Message.ID.Lane)
			if !pace.Known {
				return time.Time{}
			}
			at = at.Add(toDuration(float64(ahead) / pace.PerMinute))
		}
	}

	if closed, _, until := v.isClosed(at); closed {
		at = clock.Later(at, until)
	}

	if at = at.UTC(); at.Year() > maxYear {
		return time.Time{}
	}

	return at
}

// messagesAhead estimates how many other messages are sent first. For a held message, these are the
// messages of its key with lower positions. For a message in the log, messagesAhead also counts the
// sequence numbers from the lane's cursor up to the message, and returns the larger of the two
// numbers.
func (v *forecaster) messagesAhead() int64 {
	ahead := int64(max(v.position-1, 0))
	if !v.st.Held {
		ahead = max(ahead, v.st.Message.ID.Seq-v.control.Tail.Cursor)
	}
	return ahead
}

// isMissing reports whether the settings lack the contract of a message. The zero status has no
// contract.
func (v *forecaster) isMissing(st weir.Status) bool {
	return !st.Message.ID.IsZero() && !v.Store.Contracts.Has(st.Message.Contract)
}

// brakeOf returns the brake for which a message waits, if the CMS has rejected it; nil = it waits
// for none.
func (v *forecaster) brakeOf(st weir.Status) *lane.Brake {
	if st.Stage != weir.Retrying || !st.NextAttemptAt.IsZero() {
		return nil
	}

	for i, b := range v.control.Tail.Brakes {
		fingerprint, _ := weir.Fingerprint(st.Message.Contract, st.CMSStatus, st.LastError)
		if b.Fingerprint == fingerprint {
			return &v.control.Tail.Brakes[i]
		}
	}

	return nil
}

// describeWait returns Forecast.WaitsFor. If the message waits for several conditions, the text
// names only one.
func (v *forecaster) describeWait() string {
	due := v.st.Message.DueAt
	if v.st.Stage == weir.Scheduled && due.After(v.now) {
		return "its due time, " + formatTime(due)
	}

	if cause := v.firstPauseCause(v.control, v.now); cause.By != "" {
		return cause.describe()
	}

	if p, ok := v.findKeyPause(); ok {
		return "its key is paused" + describeReason(p.Reason, p.Until)
	}

	switch {
	case v.isMissing(v.first):
		return fmt.Sprintf("behind %s of its key, whose contract %s is missing from the settings",
			v.first.Message.Public(), v.first.Message.Contract)
	case v.isMissing(v.st):
		return fmt.Sprintf("its contract %s, which is missing from the settings",
			v.st.Message.Contract)
	case v.brakeOf(v.first) != nil:
		return fmt.Sprintf("behind %s of its key, and the CMS rejects messages of the contract %s",
			v.first.Message.Public(), v.first.Message.Contract)
	case v.brakeOf(v.st) != nil:
		return fmt.Sprintf("the CMS to take a message of the contract %s: it rejects this one as it did others; "+
			"when the cause is corrected, weir resume --all sends it", v.st.Message.Contract)
	case v.first.NextAttemptAt.After(v.now):
		return "behind " + v.first.Message.Public().String() + " of its key, which is retried at " +
			formatTime(v.first.NextAttemptAt)
	case !v.first.Message.ID.IsZero():
		return "behind " + v.first.Message.Public().String() + " of its key"
	case v.st.NextAttemptAt.After(v.now):
		return "its next attempt at " + formatTime(v.st.NextAttemptAt)
	case v.control.Tail.SettleUntil.After(v.now):
		return "the CMS may still be at work on what it did not answer, until " +
			formatTime(v.control.Tail.SettleUntil)
	case v.messagesAhead() > 0:
		return "its turn in the lane, behind about " +
			formatCount(v.messagesAhead(), "message", "messages")
	}

	return "its turn in the lane"
}
