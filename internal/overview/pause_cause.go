package overview

import (
	"fmt"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// The values of PauseCause.By.
const (
	ByOperator = "operator"
	ByCalendar = "calendar"
	ByCMS      = "cms"
)

// PauseCause is the reason why a lane sends no message. The zero PauseCause means that the lane can
// send messages.
type PauseCause struct {
	By string // ByOperator, ByCalendar or ByCMS
	// with ByCMS: the CMS answers and refuses messages; it may take messages of other keys
	IsRefused bool
	Reason    string
	Until     time.Time // zero = until an operator resumes the lane
}

// pauseCauses returns the causes that exist at the time "now": first the operator's pause of the
// lane, then the closed calendar, then the unavailable CMS.
func (o *Overview) pauseCauses(c lane.Control, now time.Time) []PauseCause {
	var causes []PauseCause
	if p, ok := c.LanePause(now); ok {
		causes = append(causes, PauseCause{By: ByOperator, Reason: p.Reason, Until: p.Until})
	}

	if closed, reason, until := o.isClosed(now); closed {
		causes = append(causes, PauseCause{By: ByCalendar, Reason: reason, Until: until})
	}

	if c.Tail.PausedUntil.After(now) {
		causes = append(causes,
			PauseCause{ByCMS, !c.Tail.RefusingSince.IsZero(), c.Tail.PauseReason,
				c.Tail.PausedUntil})
	}

	return causes
}

func (o *Overview) firstPauseCause(c lane.Control, now time.Time) PauseCause {
	if causes := o.pauseCauses(c, now); len(causes) > 0 {
		return causes[0]
	}
	return PauseCause{}
}

func (o *Overview) isClosed(at time.Time) (closed bool, reason string, until time.Time) {
	if o.Calendar == nil {
		return false, "", time.Time{}
	}
	return o.Calendar.At(at)
}

func (h PauseCause) describe() string {
	switch h.By {
	case ByCalendar:
		return "the calendar is closed" + describeReason(h.Reason, h.Until)
	case ByCMS:
		if h.IsRefused {
			return "the CMS does not take it; next try at " + formatTime(h.Until) +
				describeReason(h.Reason, time.Time{})
		}
		return "the CMS is unavailable; next try at " + formatTime(h.Until) +
			describeReason(h.Reason, time.Time{})

	default:
		return "the lane is paused" + describeReason(h.Reason, h.Until)
	}
}

// describeReason returns the end and the reason of a pause, for example " until
// 2026-01-08T12:00:00Z: maintenance".
func describeReason(reason string, until time.Time) string {
	text := ""
	if !until.IsZero() {
		text = " until " + formatTime(until)
	}

	if reason != "" {
		text += ": " + reason
	}

	return text
}

// findKeyPause returns the operator's pause of the message's key, if that pause is in force.
func (v *forecaster) findKeyPause() (weir.Pause, bool) {
	p, ok := v.control.KeyPausesByHash(v.now)[v.Store.KeyHash(v.st.Message.Key)]
	return p, ok
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func formatCount(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
