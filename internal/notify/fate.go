package notify

import (
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/storage"
)

const (
	// writeTries is how often a write is tried before the turn ends.
	writeTries = 5
	writePause = 200 * time.Millisecond
)

// takeIn decides what comes of a mail.
func (t *turn) takeIn(a answer) error {
	t.flying--
	if t.busy[a.to.host]--; t.busy[a.to.host] == 0 {
		delete(t.busy, a.to.host)
	}
	switch {
	case storage.Is(a.err, storage.NotFound):
		t.s.Log.Error("notify: the message was removed before its event was told", "lane", t.at.lane, "seq", a.Seq, "stage", string(a.Stage))
		t.done(a.Mail, outcomeDropped)
	case a.err != nil:
		t.left = true
		return a.err
	case a.cut:
		t.left = true
	case a.ok:
		t.s.Log.Debug("notify: told", "lane", t.at.lane, "seq", a.Seq, "stage", string(a.Stage), "attempt", a.Tries+1, "status", a.status)
		t.done(a.Mail, outcomeTold)
	case a.gone:
		t.s.Log.Warn("notify: the receiver wants no more", "lane", t.at.lane, "seq", a.Seq, "stage", string(a.Stage), "status", a.status)
		t.done(a.Mail, outcomeGone)
	default:
		t.failed(a.Mail, a.verdict)
	}
	return nil
}

func (t *turn) done(m lane.Mail, outcome string) {
	t.gone = append(t.gone, m)
	t.s.Observer.Notified(m.Type, outcome)
}

// failed puts a mail off until it is tried again, or gives it up.
func (t *turn) failed(m lane.Mail, v verdict) {
	is, now := m, t.s.Now()
	if is.Tried.IsZero() {
		is.Tried = now.UTC()
	}
	is.Tries++
	if now.Sub(is.Tried) >= giveUpAfter {
		t.s.Log.Error("notify: given up", "lane", t.at.lane, "seq", m.Seq, "stage", string(m.Stage), "attempt", is.Tries, "status", v.status, "err", v.reason)
		t.done(m, outcomeGivenUp)
		return
	}
	is.Next = t.moment(retryDelay(is.Tries, v.retryAfter, t.s.Rand()))
	t.s.Log.Warn("notify: not told", "lane", t.at.lane, "seq", m.Seq, "stage", string(m.Stage), "attempt", is.Tries, "status", v.status, "delay", is.Next.Sub(now), "err", v.reason)
	t.s.Observer.Notified(m.Type, outcomeRetry)
	t.later = append(t.later, lane.PutOff{Was: m, Is: is})
}

// write writes what came of mail. Where nothing is left with that, the note goes with it.
func (t *turn) write() error {
	if len(t.gone)+len(t.later) == 0 {
		return nil
	}
	note := t.note
	if t.stale || t.left || t.more || t.flying > 0 || t.queued() > 0 || len(t.later) > 0 || !t.next.IsZero() {
		note = ""
	}
	var quiet, whole bool
	var err error
	for try := 1; ; try++ {
		// Not under the lease: it is true whoever has that, and may be repeated.
		quiet, whole, err = t.store.Mailed(t.s.ctx, t.at.lane, t.gone, t.later, note)
		if err == nil || try == writeTries || t.s.ctx.Err() != nil {
			break
		}
		clock.Sleep(t.s.ctx, writePause)
	}
	if err != nil {
		return err
	}
	for _, m := range t.gone {
		delete(t.known, rowOf(m))
	}
	for _, p := range t.later {
		delete(t.known, rowOf(p.Was))
		if t.next.IsZero() || p.Is.Next.Before(t.next) {
			t.next = p.Is.Next
		}
	}
	t.gone, t.later = nil, nil
	if quiet {
		t.note = ""
		t.desk.note("", 0)
	} else if note != "" || !whole {
		t.stale = true // somebody has put more into it, or put off what was in hand here
	}
	return nil
}
