package overview

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/overview/lists"
	"weir/internal/weir"
)

// Forecast is the forecast of a waiting message. A field is zero if its value is not known.
type Forecast struct {
	Position   int       // position among the messages of its key that are held or in the log, from 1
	ExpectedAt time.Time // estimated time at which the message is sent
	WaitsFor   string    // what the message waits for, as a text for users
}

const (
	// At most maxQueuePages pages of a key's queue are read. At most maxForecastRows rows of the log before the message
	// are read.
	maxQueuePages   = 2
	maxForecastRows = 1000
	// maxYear is the last year that RFC 3339 can express.
	maxYear = 9999
)

// Forecast returns the forecast of a message, with at most four queries. The forecast is zero for a final message and
// for a message of an earlier epoch.
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
	return Forecast{Position: v.position, ExpectedAt: v.estimateSendTime(ctx), WaitsFor: v.describeWait()}, nil
}

// forecaster collects the state on which the forecast of one message depends.
type forecaster struct {
	*Overview
	st       weir.Status
	control  lane.Control
	now      time.Time
	position int         // Forecast.Position; 0 = not known
	first    weir.Status // status of the key's message at position 1; zero = the message itself, or not known
}

// findPosition finds the message's position. The key's held messages are before its messages in the log, because the
// holder has read them from the log earlier.
func (v *forecaster) findPosition(ctx context.Context) error {
	id := v.st.Message.ID
	pages := 1
	if v.st.Held {
		pages = maxQueuePages // the forecast of a held message does not read the log, so two queries are allowed here
	}
	line, whole, err := lists.Reader{Store: v.Store}.ReadKeyQueue(ctx, id.Lane, lane.BlockIDOf(&v.st.Message), pages)
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

// readFirst reads the first message of the key's queue, unless it is the message itself.
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

// countInLog sets the position of a message that is in the log. The held messages of its key come before it, and so do
// the earlier messages of its key in the log.
func (v *forecaster) countInLog(ctx context.Context, held int) error {
	id, cursor := v.st.Message.ID, v.control.Tail.Cursor
	if id.Seq < cursor || id.Seq-cursor > maxForecastRows {
		return nil
	}
	v.position = held + 1
	if v.st.Message.Skip || id.Seq == cursor {
		return nil
	}
	entries, err := v.Store.ScanLog(ctx, id.Lane, cursor, int(id.Seq-cursor))
	for _, e := range entries {
		if e.Seq() >= id.Seq || e.Message.Key != v.st.Message.Key || e.Stage != weir.Queued || e.IsHeld {
			continue
		}
		v.position++
		if v.first.Message.ID.IsZero() {
			v.first = e.Status()
		}
	}
	return err
}

// estimateSendTime returns the time at which the message will probably be sent. It returns zero if an operator has to
// act first, if messages are ahead and the lane's pace is not known, or if the time is after maxYear.
func (v *forecaster) estimateSendTime(ctx context.Context) time.Time {
	at := laterOf(v.now, laterOf(v.st.NextAttemptAt, v.first.NextAttemptAt))
	if v.st.Stage == weir.Scheduled {
		at = laterOf(v.now, v.st.Message.DueAt)
	}
	if p, ok := findKeyPause(v.control, v.st.Message.Key, v.now); ok {
		if p.Until.IsZero() {
			return time.Time{}
		}
		at = laterOf(at, p.Until)
	}
	for _, h := range v.pauseCauses(v.control, v.now) {
		if h.Until.IsZero() {
			return time.Time{}
		}
		at = laterOf(at, h.Until)
	}
	// The lane's pauses delay the messages before this message, too. So the time for those messages begins at the end
	// of the pauses.
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
		at = laterOf(at, until)
	}
	if at = at.UTC(); at.Year() > maxYear {
		return time.Time{}
	}
	return at
}

// messagesAhead estimates how many messages are sent before the message. It counts the messages before it in its key's
// queue. If the message is not held, messagesAhead also counts all messages of the log between the cursor and the
// message, and returns the larger of the two numbers.
func (v *forecaster) messagesAhead() int64 {
	ahead := int64(max(v.position-1, 0))
	if !v.st.Held {
		ahead = max(ahead, v.st.Message.ID.Seq-v.control.Tail.Cursor)
	}
	return ahead
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// describeWait returns the first condition that the message waits for, as a text for users.
func (v *forecaster) describeWait() string {
	due := v.st.Message.DueAt
	if v.st.Stage == weir.Scheduled && due.After(v.now) {
		return "its due time, " + formatTime(due)
	}
	if cause := v.firstPauseCause(v.control, v.now); cause.By != "" {
		return cause.describe()
	}
	if p, ok := findKeyPause(v.control, v.st.Message.Key, v.now); ok {
		return "its key is paused" + describeReason(p.Reason, p.Until)
	}
	switch {
	case v.first.NextAttemptAt.After(v.now):
		return "behind " + v.first.Message.Public().String() + " of its key, which is retried at " +
			formatTime(v.first.NextAttemptAt)
	case !v.first.Message.ID.IsZero():
		return "behind " + v.first.Message.Public().String() + " of its key"
	case v.st.NextAttemptAt.After(v.now):
		return "its next attempt at " + formatTime(v.st.NextAttemptAt)
	case v.control.Tail.SettleUntil.After(v.now):
		return "the CMS may still be at work on what it did not answer, until " + formatTime(v.control.Tail.SettleUntil)
	case v.messagesAhead() > 0:
		return "its turn in the lane, behind about " + formatCount(v.messagesAhead(), "message", "messages")
	}
	return "its turn in the lane"
}
