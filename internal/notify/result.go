package notify

import (
	"time"

	"weir/internal/lane/outbox"
	"weir/internal/retry"
	"weir/internal/storage"
)

const (
	// maxWriteTries bounds the tries to save results. If the last try fails, the session ends.
	maxWriteTries   = 5
	writeRetryDelay = 200 * time.Millisecond
)

// handleResult decides whether saveResults removes the event, postpones the event or leaves it. If
// storage failed before the request to the receiver, handleResult returns the error. If the message
// no longer exists, saveResults removes the event.
func (t *outboxSession) handleResult(a sendResult) error {
	t.inFlight--
	if t.inFlightByHost[a.endpoint.host]--; t.inFlightByHost[a.endpoint.host] == 0 {
		delete(t.inFlightByHost, a.endpoint.host)
	}

	if t.inFlightByLine[a.line]--; t.inFlightByLine[a.line] == 0 {
		delete(t.inFlightByLine, a.line)
	}

	switch {
	case storage.Is(a.err, storage.NotFound):
		t.sender.Log.Error("notify: event dropped, its message was removed", "lane",
			t.outbox.lane, "seq", a.Seq, "stage", string(a.Stage))
		t.finishMail(a.Event, outcomeDropped)

	case a.err != nil:
		t.hasUnsent = true
		return a.err
	case a.isCancelled:
		t.hasUnsent = true
	case a.accepted:
		t.sender.Log.Debug("notify: told", "lane", t.outbox.lane, "seq", a.Seq, "stage",
			string(a.Stage), "attempt", a.Attempts+1, "status", a.status)
		t.finishMail(a.Event, outcomeTold)

	case a.gone:
		t.sender.Log.Warn("notify: event removed, the receiver answered 410", "lane", t.outbox.lane,
			"seq", a.Seq, "stage",
			string(a.Stage), "status", a.status)
		t.finishMail(a.Event, outcomeGone)

	default:
		t.handleFailure(a.Event, a.response)
	}

	return nil
}

func (t *outboxSession) finishMail(m outbox.Event, outcome string) {
	t.finished = append(t.finished, m)
	t.sender.Observer.Notified(m.Type, outcome)
}

// giveUp removes an event that no receiver has accepted. The argument v is the response to its last
// try.
func (t *outboxSession) giveUp(m outbox.Event, v response) {
	t.sender.Log.Error("notify: event given up", "lane", t.outbox.lane, "seq", m.Seq, "stage",
		string(m.Stage), "attempt", m.Attempts, "status", v.status, "err", v.reason)
	t.finishMail(m, outcomeGivenUp)
}

// handleFailure counts a failed request of an event. Then saveResults postpones the event, or
// removes it if the first try was giveUpAfter ago or earlier. No other event of the receiver is
// written.
func (t *outboxSession) handleFailure(m outbox.Event, v response) {
	next, now := m, t.sender.Now()
	if next.FirstTriedAt.IsZero() {
		next.FirstTriedAt = now.UTC()
	}

	next.Attempts++
	if now.Sub(next.FirstTriedAt) >= giveUpAfter {
		m.Attempts = next.Attempts
		t.giveUp(m, v)
		return
	}

	next.NextAt = t.timeFromNow(retryDelay(next.Attempts, v.retryAfter, t.sender.Rand()))
	t.sender.Log.Warn("notify: event not delivered, will retry", "lane", t.outbox.lane, "seq",
		m.Seq, "stage", string(m.Stage), "attempt",
		next.Attempts, "status", v.status, "delay_ms", next.NextAt.Sub(now).Milliseconds(),
		"err", v.reason)

	t.sender.Observer.Notified(m.Type, outcomeRetry)
	t.rescheduled = append(t.rescheduled, outbox.Postponement{Was: m, Is: next})
}

// timeFromNow returns the current time plus a duration, in UTC and in whole microseconds, as rows
// store times.
func (t *outboxSession) timeFromNow(in time.Duration) time.Time {
	return t.sender.Now().Add(in).UTC().Truncate(time.Microsecond)
}

// saveResults removes the finished events from the outbox, and postpones the rescheduled events. If
// no event is left, it also removes the marker.
func (t *outboxSession) saveResults() error {
	if len(t.finished)+len(t.rescheduled) == 0 {
		return nil
	}

	marker := t.marker
	if t.mayHaveUnseen || t.lines.isPartial || t.hasMoreDue || t.hasLeft() ||
		len(t.rescheduled) > 0 ||
		!t.nextDueAt.IsZero() {
		marker = ""
	}

	var isEmpty, allWritten bool

	// The end of the lease must not stop this write: the results stay valid without the lease, and
	// the write is idempotent.
	ctx := t.sender.ctx
	err := retry.Policy{First: writeRetryDelay, Tries: maxWriteTries}.Do(ctx, func() (err error) {
		isEmpty, allWritten, err = t.rows.Ack(ctx, t.finished, t.rescheduled, marker)
		return err
	})
	if err != nil {
		return err
	}

	for _, m := range t.finished {
		delete(t.inProgress, mailKey(m))
	}

	for _, p := range t.rescheduled {
		delete(t.inProgress, mailKey(p.Was))
		if t.nextDueAt.IsZero() || p.Is.NextAt.Before(t.nextDueAt) {
			t.nextDueAt = p.Is.NextAt
		}
	}

	t.finished, t.rescheduled = nil, nil
	if isEmpty {
		t.marker = ""
		t.outboxWorker.recordMarker("", 0)
	} else if marker != "" || !allWritten {
		// events were added meanwhile, or another process has changed rows of these events
		t.mayHaveUnseen = true
	}

	return nil
}
