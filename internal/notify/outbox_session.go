package notify

import (
	"context"
	"errors"
	"time"

	"weir/internal/lane/outbox"
	"weir/internal/panics"
	"weir/internal/storage"
)

const (
	// One read of new rows returns up to readLimit rows in addition to the rows of inProgress, or
	// wholeLimit rows if a line is behind. A line that is behind reads lineLimit rows at a time, or
	// wholeLimit rows if its rows are rare. While
	// requests are in flight, the reads are at least readInterval apart.
	readLimit    = 200
	wholeLimit   = 1000
	lineLimit    = 100
	readInterval = 500 * time.Millisecond
	// While a line is behind, the session does not read the outbox from the beginning for each new
	// event, but from lateRows before the present. Rows that were added later than that are found
	// at the next read of the whole outbox, after wholeInterval.
	lateRows      = 10 * time.Second
	wholeInterval = 5 * time.Minute
	// lingerTime is the time for which a session waits for further events when the outbox is empty.
	// While the lane delivers messages, further events usually follow soon.
	lingerTime = 2 * time.Second
)

// outboxSession sends the events of an outbox while this process has the outbox's lease. All
// methods except sendMail run in one goroutine.
type outboxSession struct {
	*outboxWorker
	ctx context.Context // ends with the lease
	// the marker's ETag before the last read of new rows; empty = no row
	marker        storage.ETag
	markerIsFresh bool // the next readDue need not read the marker again
	mayHaveUnseen bool // the outbox may have rows that this session has not read
	hasUnsent     bool // some events were read and not sent, so their rows stay
	hasMoreDue    bool // rows behind lines.next can be due
	rowsRead      int  // number of rows of the present read from the beginning
	// due time of the first event that is not due yet; zero = there is none
	nextDueAt  time.Time
	lastReadAt time.Time

	lines *lines
	// by mailKey: events that were read and whose results are not saved
	inProgress     map[string]bool
	inFlightByHost map[string]int // number of requests in flight, by host
	inFlightByLine map[string]int // by the name of the line
	requestCount   int
	inFlight       int
	results        chan sendResult

	finished    []outbox.Event        // events that saveResults has to remove
	rescheduled []outbox.Postponement // events that saveResults has to postpone
}

// queuedMail is an event with its endpoint.
type queuedMail struct {
	outbox.Event
	endpoint endpoint
	line     string // name of the line that has sent the event
}

// sendResult is the response to a request, or the failure that prevented the request.
type sendResult struct {
	queuedMail
	response
	err error // error of storage; no request was sent
}

// mailKey returns a text that identifies an event in its outbox.
func mailKey(m outbox.Event) string { return m.Key + " " + m.Receiver }

// deliverAll sends events until no event can be sent. It returns the time at which the next event
// can be sent. If the outbox is empty, this time is zero.
func (t *outboxSession) deliverAll() (time.Time, error) {
	err := t.sendDue()
	for t.inFlight > 0 { // only if sendDue had an error or had to stop
		t.handleResult(<-t.results)
	}

	if err == nil || len(t.finished)+len(t.rescheduled) > 0 {
		err = errors.Join(err, t.saveResults())
	}

	if err != nil {
		return time.Time{}, err
	}

	next := t.nextReadAt()
	if next.IsZero() && t.hasLeft() {
		next = t.sender.Now()
	}

	if !t.hasUnsent && t.lines.countQueued() == 0 {
		t.outboxWorker.lines = t.lines
	}

	return next, nil
}

func (t *outboxSession) sendDue() error {
	for t.ctx.Err() == nil && t.sender.startCtx.Err() == nil {
		if wait, isWanted := t.untilNextRead(); isWanted && wait <= 0 {
			if err := t.readDue(); err != nil {
				return err
			}
		}

		t.startRequests()
		if err := t.saveResults(); err != nil {
			return err
		}

		if t.inFlight > 0 {
			if err := t.awaitResult(); err != nil {
				return err
			}
			continue
		}

		if t.mayHaveUnseen || t.hasMoreDue || t.lines.countQueued() > 0 ||
			t.findRefillable() != nil {
			continue
		}

		if over, err := t.waitIdle(); over || err != nil {
			return err
		}
	}

	return context.Cause(t.ctx)
}

// startRequests starts the requests that maxPerHost and maxPerLane allow. It begins with the line
// whose last request is the oldest, so that slow hosts leave room for others. If an event's host or
// address is in its backoff (see hostBackoffs), startRequests leaves the event in its row.
func (t *outboxSession) startRequests() {
	t.mergeLines()
	for _, l := range t.lines.list() {
		if t.allowedAtOnce(l) == 0 {
			t.leaveQueue(l)
			continue
		}

		for len(l.queue) > 0 && t.mayStart(l) {
			m := l.queue[0]
			l.queue = l.queue[1:]
			if own := t.findLine(m.endpoint); own != l {
				t.leaveInRow(own, m.Event) // the address has got a backoff of its own
				continue
			}

			t.startRequest(l, m)
		}
	}
}

func (t *outboxSession) mayStart(l *line) bool {
	atHost := t.sender.backoffs.allowedAtOnce(l.host, t.sender.Now())
	return t.inFlight < maxPerLane && t.inFlightByHost[l.host] < atHost &&
		t.inFlightByLine[l.name] < t.allowedAtOnce(l)
}

func (t *outboxSession) startRequest(l *line, m queuedMail) {
	m.line = l.name
	t.inFlightByHost[l.host]++
	t.inFlightByLine[l.name]++
	t.inFlight++
	t.requestCount++
	l.lastServed = t.requestCount
	go t.sendMail(m)
}

// sendMail sends one event, and puts the result into t.results. It runs in its own goroutine. A
// panic counts as a failed try of this event, so the other events go on.
func (t *outboxSession) sendMail(i queuedMail) {
	a := sendResult{queuedMail: i}
	err := panics.Catch(func() error { t.tryMail(&a); return nil })
	if err != nil {
		t.sender.Log.Error("notify: panic in a request", "lane", t.outbox.lane, "seq", i.Seq,
			"err", err)
		a.response, a.err = response{reason: "internal error while sending the event"}, nil
	}

	t.results <- a
}

func (t *outboxSession) tryMail(a *sendResult) {
	select {
	case t.sender.slots <- struct{}{}:
		defer func() { <-t.sender.slots }()
	case <-t.ctx.Done():
		a.isCancelled = true
		return
	}

	var of trace // an event about a lane or a bulk replay has none
	if a.Body == nil {
		st, err := t.store.ReadStatus(t.ctx, t.outbox.lane, a.Seq)
		if err == nil {
			a.ID, a.Body, err = encodeMessageEvent(a.Event, st)
			of = trace{st.Message.TraceParent, st.Message.TraceState}
		}

		if a.err = err; err != nil {
			return
		}
	}

	a.response = a.endpoint.postEvent(t.ctx, a.ID, a.Body, of, t.sender.Now())
	if !a.isCancelled {
		t.sender.backoffs.recordResponse(a.endpoint, a.response, t.sender.Now())
	}
}

// awaitResult waits for the first of four events: a result, the time of the next read, a wake, or
// the end of the session. It then handles all results that have arrived.
func (t *outboxSession) awaitResult() error {
	var look <-chan time.Time
	if wait, isWanted := t.untilNextRead(); isWanted {
		timer := time.NewTimer(max(wait, 0))
		defer timer.Stop()
		look = timer.C
	}

	select {
	case <-look:
	case a := <-t.results:
		if err := t.handleResult(a); err != nil {
			return err
		}

	case <-t.wake:
		t.mayHaveUnseen = true
	case <-t.ctx.Done():
	case <-t.sender.startCtx.Done():
	}

	for {
		select {
		case a := <-t.results:
			if err := t.handleResult(a); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// waitIdle is called when no event can be sent. If the outbox is empty, waitIdle removes the
// marker. If the outbox got an event meanwhile, waitIdle returns at once. Otherwise, it waits until
// an event can be sent, the worker is woken, or lingerTime is over. It reports whether the session
// is over.
func (t *outboxSession) waitIdle() (over bool, err error) {
	next := t.nextReadAt()
	if next.IsZero() && !t.hasLeft() && t.marker != "" {
		isEmpty, err := t.rows.ClearMarker(t.ctx, t.marker)
		if err != nil {
			return true, err
		}

		if t.mayHaveUnseen = !isEmpty; t.mayHaveUnseen {
			return false, nil
		}

		t.marker = ""
		t.outboxWorker.recordMarker("", 0)
	}

	wait, dueSoon := lingerTime, false
	if left := next.Sub(t.sender.Now()); !next.IsZero() && left <= lingerTime {
		wait, dueSoon = left, true
	}

	timer := time.NewTimer(wait)
	defer timer.Stop()

	select {
	case <-timer.C:
		return !dueSoon, nil
	case <-t.wake:
		t.mayHaveUnseen = true
		return false, nil
	case <-t.ctx.Done():
	case <-t.sender.startCtx.Done():
	}

	return true, nil
}
