package notify

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"weir/internal/notify/outbox"
	"weir/internal/panics"
	"weir/internal/storage"
)

const (
	// maxQueuedPerHost limits the events in memory for one host. The session postpones the host's further due events,
	// by a random time between minPostpone and 2*minPostpone.
	maxQueuedPerHost = 50
	minPostpone      = 30 * time.Second
	// One read of the outbox returns up to readLimit rows in addition to the rows of inProgress. While requests are in
	// flight, the reads are at least readInterval apart.
	readLimit    = 200
	readInterval = 500 * time.Millisecond
	// lingerTime is the time for which a session waits for further events when the outbox is empty. While the lane
	// delivers messages, further events usually follow soon.
	lingerTime = 2 * time.Second
)

// outboxSession sends the events of an outbox while this process has the outbox's lease. All methods except sendMail
// run in one goroutine.
type outboxSession struct {
	*outboxWorker
	ctx           context.Context // ends with the lease
	marker        storage.ETag    // the marker's ETag just before the last read; empty = the outbox was empty
	markerIsFresh bool            // the next readDue need not read the marker again
	mayHaveUnseen bool            // the outbox may have rows that this session has not read
	hasUnsent     bool            // some events were read and not sent, so their rows stay
	hasMoreDue    bool            // the last read can have left due rows unread
	nextDueAt     time.Time       // due time of the first event that is not due yet; zero = there is none
	lastReadAt    time.Time

	queues         map[string][]queuedMail // by host
	inProgress     map[string]bool         // by mailKey: events that were read and whose results are not saved
	inFlightByHost map[string]int          // number of requests in flight, by host
	lastServed     map[string]int          // by host: requestCount at the host's last request; only hosts with a queue
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
}

// sendResult is the response to a request, or the failure that prevented the request.
type sendResult struct {
	queuedMail
	response
	err error // error of storage; no request was sent
}

// mailKey returns a text that identifies an event in its outbox.
func mailKey(m outbox.Event) string { return m.Key + " " + m.Receiver }

// deliverAll sends events until no event is due. It returns the time at which the next event becomes due. If the outbox
// is empty, this time is zero.
func (t *outboxSession) deliverAll() (time.Time, error) {
	err := t.sendDue()
	for t.inFlight > 0 { // only if sendDue had an error or had to stop
		t.handleResult(<-t.results)
	}
	if err == nil || len(t.finished)+len(t.rescheduled) > 0 {
		err = errors.Join(err, t.saveResults())
	}
	return t.nextDueAt, err
}

func (t *outboxSession) sendDue() error {
	for t.ctx.Err() == nil && t.sender.startCtx.Err() == nil {
		if left := t.untilNextRead(); left == 0 {
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
		if t.mayHaveUnseen || t.hasMoreDue || t.countQueued() > 0 {
			continue
		}
		if over, err := t.waitIdle(); over || err != nil {
			return err
		}
	}
	return context.Cause(t.ctx)
}

// untilNextRead returns the time until the next read; below 0 = no read is needed.
func (t *outboxSession) untilNextRead() time.Duration {
	if !t.mayHaveUnseen && !(t.hasMoreDue && t.countQueued() < readLimit) {
		return -1
	}
	if t.inFlight == 0 {
		return 0
	}
	return max(0, readInterval-t.sender.Now().Sub(t.lastReadAt))
}

func (t *outboxSession) countQueued() int {
	n := 0
	for _, q := range t.queues {
		n += len(q)
	}
	return n
}

// readDue reads the due events and adds them to the hosts' queues.
func (t *outboxSession) readDue() error {
	t.mayHaveUnseen, t.lastReadAt = true, t.sender.Now() // mayHaveUnseen stays true if the read fails
	if !t.markerIsFresh {
		control, err := t.store.ReadControl(t.ctx, t.outbox.lane)
		if err != nil {
			return err
		}
		t.marker = outbox.MarkerOf(control)
	}
	t.markerIsFresh = false
	if t.marker == "" {
		t.mayHaveUnseen, t.hasMoreDue, t.nextDueAt = false, false, time.Time{}
		t.outboxWorker.recordMarker("", 0)
		return nil
	}
	page, err := t.rows.Read(t.ctx, t.sender.Now(), min(readLimit+len(t.inProgress), 1000))
	if err != nil {
		return err
	}
	t.mayHaveUnseen, t.hasMoreDue, t.nextDueAt = false, page.More, page.NextAt
	t.outboxWorker.recordMarker(t.marker, page.RowsSeen)
	for _, m := range page.Due {
		if !t.inProgress[mailKey(m)] {
			t.inProgress[mailKey(m)] = true
			t.enqueueMail(m)
		}
	}
	if t.hasMoreDue && len(t.rescheduled) > 0 {
		// The next read finds other events in place of the postponed ones, so it need not wait.
		t.lastReadAt = time.Time{}
	}
	return nil
}

// enqueueMail adds an event to its host's queue. It drops an event without a receiver. If the queue is full,
// enqueueMail postpones the event.
func (t *outboxSession) enqueueMail(m outbox.Event) {
	to, ok := t.sender.resolveEndpoint(m)
	if !ok {
		t.sender.Log.Warn("notify: event dropped, its receiver is no longer in the settings", "lane", t.outbox.lane,
			"seq", m.Seq, "stage", string(m.Stage))
		t.finishMail(m, outcomeDropped)
		return
	}
	if q := t.queues[to.host]; len(q) < maxQueuedPerHost {
		t.queues[to.host] = append(q, queuedMail{m, to})
		return
	}
	next := m
	next.NextAt = t.timeFromNow(minPostpone + time.Duration(t.sender.Rand()*float64(minPostpone)))
	t.rescheduled = append(t.rescheduled, outbox.Postponement{Was: m, Is: next})
}

// timeFromNow returns the current time plus a duration, in UTC and in whole microseconds, as rows store times.
func (t *outboxSession) timeFromNow(in time.Duration) time.Time {
	return t.sender.Now().Add(in).UTC().Truncate(time.Microsecond)
}

// startRequests starts the requests that maxPerHost and maxPerLane allow. It begins with the host whose last request is
// the oldest, so that slow hosts leave room for others. If an event's host or address is in its backoff (see
// hostBackoffs), startRequests sends no request for the event. Instead, it records a failed try, which postpones the
// event.
func (t *outboxSession) startRequests() {
	byLastServed := func(a, b string) int {
		return cmp.Or(cmp.Compare(t.lastServed[a], t.lastServed[b]),
			cmp.Compare(a, b))
	}
	for _, host := range slices.SortedFunc(maps.Keys(t.queues), byLastServed) {
		atOnce := t.sender.backoffs.allowedAtOnce(host, t.sender.Now())
		q := t.queues[host]
		for ; atOnce == 0 && len(q) > 0; q = q[1:] {
			t.handleFailure(q[0].Event, response{reason: "the receiver's host did not answer the last request"})
		}
		for ; len(q) > 0 && t.inFlightByHost[host] < atOnce && t.inFlight < maxPerLane; q = q[1:] {
			if t.sender.backoffs.allowedAtOnce(q[0].endpoint.url, t.sender.Now()) == 0 {
				t.handleFailure(q[0].Event, response{reason: "the receiver asked for a pause"})
				continue
			}
			t.inFlightByHost[host]++
			t.inFlight++
			t.requestCount++
			t.lastServed[host] = t.requestCount
			go t.sendMail(q[0])
		}
		if t.queues[host] = q; len(q) == 0 {
			delete(t.queues, host)
			delete(t.lastServed, host)
		}
	}
}

// sendMail sends one event, and puts the result into t.results. It runs in its own goroutine. A panic
// counts as a failed try of this event, so the other events go on.
func (t *outboxSession) sendMail(i queuedMail) {
	a := sendResult{queuedMail: i}
	err := panics.Catch(func() error { t.tryMail(&a); return nil })
	if err != nil {
		t.sender.Log.Error("notify: panic in a request", "lane", t.outbox.lane, "seq", i.Seq, "err", err)
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
	if a.Body == nil {
		st, err := t.store.ReadStatus(t.ctx, t.outbox.lane, a.Seq)
		if err == nil {
			a.ID, a.Body, err = encodeMessageEvent(a.Event, st)
		}
		if a.err = err; err != nil {
			return
		}
	}
	a.response = a.endpoint.postEvent(t.ctx, a.ID, a.Body, t.sender.Now())
	if !a.isCancelled {
		t.sender.backoffs.recordResponse(a.endpoint, a.response, t.sender.Now())
	}
}

// awaitResult waits for the first of four events: a result, the time of the next read, a wake, or the end of the
// session. It then handles all results that have arrived.
func (t *outboxSession) awaitResult() error {
	var look <-chan time.Time
	if left := t.untilNextRead(); left >= 0 {
		timer := time.NewTimer(left)
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

// waitIdle is called when no event is due. If the outbox is empty, waitIdle removes the marker. If the outbox got an
// event meanwhile, waitIdle returns at once. Otherwise, it waits until an event becomes due, the worker is woken, or
// lingerTime is over. It reports whether the session is over.
func (t *outboxSession) waitIdle() (over bool, err error) {
	if t.nextDueAt.IsZero() && t.marker != "" {
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
	if left := t.nextDueAt.Sub(t.sender.Now()); !t.nextDueAt.IsZero() && left <= lingerTime {
		wait, dueSoon = left, true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		t.mayHaveUnseen = dueSoon
		return !dueSoon, nil
	case <-t.wake:
		t.mayHaveUnseen = true
		return false, nil
	case <-t.ctx.Done():
	case <-t.sender.startCtx.Done():
	}
	return true, nil
}
