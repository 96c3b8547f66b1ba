package overview

import (
	"fmt"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// Who stops a lane.
const (
	ByOperator = "operator"
	ByCalendar = "calendar"
	ByCMS      = "cms"
)

// Halt is why nothing of a lane is sent; the zero Halt: something may be.
type Halt struct {
	By     string // one of the above
	Reason string
	Until  time.Time // zero = until somebody resumes it
}

// halts are all that stop a lane now, what people decided before what the CMS does.
func (o *Overview) halts(c lane.Control, now time.Time) []Halt {
	var halts []Halt
	if p, ok := c.Paused(now); ok {
		halts = append(halts, Halt{ByOperator, p.Reason, p.Until})
	}
	if closed, reason, until := o.closed(now); closed {
		halts = append(halts, Halt{ByCalendar, reason, until})
	}
	if c.Tail.PausedUntil.After(now) {
		halts = append(halts, Halt{ByCMS, c.Tail.PauseReason, c.Tail.PausedUntil})
	}
	return halts
}

func (o *Overview) halt(c lane.Control, now time.Time) Halt {
	if halts := o.halts(c, now); len(halts) > 0 {
		return halts[0]
	}
	return Halt{}
}

// closed asks the calendar, where there is one.
func (o *Overview) closed(at time.Time) (closed bool, reason string, until time.Time) {
	if o.Calendar == nil {
		return false, "", time.Time{}
	}
	return o.Calendar.At(at)
}

// words say what a waiting message waits for.
func (h Halt) words() string {
	return map[string]string{ByOperator: "the lane is paused", ByCalendar: "the calendar is closed", ByCMS: "the CMS is unavailable"}[h.By] + because(h.Reason, h.Until)
}

func because(reason string, until time.Time) string {
	text := ""
	if !until.IsZero() {
		text = " until " + clock(until)
	}
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// keyPause is the operator's pause of one key, if it is in force.
func keyPause(c lane.Control, key string, now time.Time) (weir.Pause, bool) {
	for _, p := range c.KeyPauses(now) {
		if p.Key == key {
			return p, true
		}
	}
	return weir.Pause{}, false
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
