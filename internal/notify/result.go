package notify

import (
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/storage"
)

const (
	// maxWriteTries bounds the tries of one write; then the session ends.
	maxWriteTries   = 5
	writeRetryDelay = 200 * time.Millisecond
)

// handleResult removes the event's row, or reschedules it. It returns an error of storage.
func (t *outboxSession) handleResult(a sendResult) error {
	t.inFlight--
	if t.inFlightByHost[a.endpoint.host]--; t.inFlightByHost[a.endpoint.host] == 0 {
		delete(t.inFlightByHost, a.endpoint.host)
	}
	switch {
	case storage.Is(a.err, storage.NotFound):
		t.sender.Log.Error("notify: event dropped, its message was removed", "lane", t.outbox.lane, "seq",
			a.Seq, "stage", string(a.Stage))
		t.finishMail(a.Mail, outcomeDropped)
	case a.err != nil:
		t.hasUnsent = true
		return a.err
	case a.isCancelled:
		t.hasUnsent = true
	case a.accepted:
		t.sender.Log.Debug("notify: told", "lane", t.outbox.lane, "seq", a.Seq, "stage", string(a.Stage), "attempt",
			a.Tries+1, "status", a.status)
		t.finishMail(a.Mail, outcomeTold)
	case a.gone:
		t.sender.Log.Warn("notify: event removed, the receiver answered 410", "lane", t.outbox.lane, "seq", a.Seq,
			"stage",
			string(a.Stage), "status", a.status)
		t.finishMail(a.Mail, outcomeGone)
	default:
		t.handleFailure(a.Mail, a.response)
	}
	return nil
}

func (t *outboxSession) finishMail(m lane.Mail, outcome string) {
	t.finished = append(t.finished, m)
	t.sender.Observer.Notified(m.Type, outcome)
}

// handleFailure reschedules an event, or gives it up after giveUpAfter.
func (t *outboxSession) handleFailure(m lane.Mail, v response) {
	next, now := m, t.sender.Now()
	if next.Tried.IsZero() {
		next.Tried = now.UTC()
	}
	next.Tries++
	if now.Sub(next.Tried) >= giveUpAfter {
		t.sender.Log.Error("notify: event given up", "lane", t.outbox.lane, "seq", m.Seq, "stage", string(m.Stage),
			"attempt", next.Tries, "status", v.status, "err", v.reason)
		t.finishMail(m, outcomeGivenUp)
		return
	}
	next.Next = t.timeFromNow(retryDelay(next.Tries, v.retryAfter, t.sender.Rand()))
	t.sender.Log.Warn("notify: event not delivered, will retry", "lane", t.outbox.lane, "seq", m.Seq, "stage",
		string(m.Stage), "attempt",
		next.Tries, "status", v.status, "delay", next.Next.Sub(now), "err", v.reason)
	t.sender.Observer.Notified(m.Type, outcomeRetry)
	t.rescheduled = append(t.rescheduled, lane.PutOff{Was: m, Is: next})
}

// saveResults writes the finished and rescheduled events. If that leaves the outbox empty, the same
// transaction removes the marker.
func (t *outboxSession) saveResults() error {
	if len(t.finished)+len(t.rescheduled) == 0 {
		return nil
	}
	marker := t.marker
	if t.mayHaveUnseen || t.hasUnsent || t.hasMoreDue || t.inFlight > 0 || t.countQueued() > 0 ||
		len(t.rescheduled) > 0 || !t.nextDueAt.IsZero() {
		marker = ""
	}
	var isEmpty, allWritten bool
	var err error
	for try := 1; ; try++ {
		// Not under the lease's context: the results hold even if the lease is lost, and the write is
		// idempotent.
		isEmpty, allWritten, err = t.store.Mailed(t.sender.ctx, t.outbox.lane, t.finished, t.rescheduled, marker)
		if err == nil || try == maxWriteTries || t.sender.ctx.Err() != nil {
			break
		}
		clock.Sleep(t.sender.ctx, writeRetryDelay)
	}
	if err != nil {
		return err
	}
	for _, m := range t.finished {
		delete(t.inProgress, mailKey(m))
	}
	for _, p := range t.rescheduled {
		delete(t.inProgress, mailKey(p.Was))
		if t.nextDueAt.IsZero() || p.Is.Next.Before(t.nextDueAt) {
			t.nextDueAt = p.Is.Next
		}
	}
	t.finished, t.rescheduled = nil, nil
	if isEmpty {
		t.marker = ""
		t.outboxWorker.recordMarker("", 0)
	} else if marker != "" || !allWritten {
		t.mayHaveUnseen = true // another process added events, or rescheduled ours
	}
	return nil
}
