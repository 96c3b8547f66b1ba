package notify

import (
	"time"

	"weir/internal/lane"
	"weir/internal/lane/outbox"
)

// untilNextRead returns the time until the next read, and reports whether a read is wanted.
func (t *outboxSession) untilNextRead() (wait time.Duration, isWanted bool) {
	now := t.sender.Now()
	if t.hasMoreDue {
		return 0, true
	}

	wait = max(0, readInterval-now.Sub(t.lastReadAt))
	if t.inFlight == 0 {
		wait = 0
	}

	if t.mayHaveUnseen || t.findRefillable() != nil {
		return wait, true
	}

	next := t.nextReadAt()
	if next.IsZero() {
		return 0, false
	}

	return max(wait, next.Sub(now)), true
}

// nextReadAt returns the time of the next read, if no wake and no result comes before; zero = none.
func (t *outboxSession) nextReadAt() time.Time {
	next, now := t.nextDueAt, t.sender.Now()
	useIfEarlier := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}

	for _, l := range t.lines.byName {
		if retryAt := t.retryAt(l); l.isBehind() && retryAt.After(now) {
			useIfEarlier(retryAt)
		}
	}

	if t.lines.isPartial {
		useIfEarlier(t.lines.wholeAt)
	}

	return next
}

// hasLeft reports whether the outbox has events that this session has read, and that are neither
// sent nor postponed.
func (t *outboxSession) hasLeft() bool {
	return t.hasUnsent || t.inFlight > 0 || t.lines.countQueued() > 0 || t.lines.isBehind()
}

// readDue reads new rows, and further rows of a line that is behind, and adds the events to the
// queues of the lines.
func (t *outboxSession) readDue() error {
	now := t.sender.Now()
	t.lastReadAt = now
	if t.mayHaveUnseen || t.lines.isPartial && !now.Before(t.lines.wholeAt) {
		t.mayHaveUnseen = true // it stays true if the read of the marker fails
		if isEmpty, err := t.beginRead(now); isEmpty || err != nil {
			return err
		}
	}

	if t.hasMoreDue || !t.nextDueAt.IsZero() && !t.nextDueAt.After(now) {
		if err := t.readNew(); err != nil {
			t.mayHaveUnseen = true
			return err
		}
	}

	t.mergeLines()

	if l := t.findRefillable(); l != nil {
		limit := lineLimit
		if l.isSparse {
			limit = wholeLimit
		}
		return t.readPage(l.readUpTo, limit)
	}

	return nil
}

// beginRead reads the marker, and sets the position from which readNew goes on: the beginning of
// the outbox, or a position shortly before the present if a line is behind. It reports whether the
// outbox is empty.
func (t *outboxSession) beginRead(now time.Time) (isEmpty bool, err error) {
	if !t.markerIsFresh {
		control, err := t.store.ReadControl(t.ctx, t.outbox.lane)
		if err != nil {
			return false, err
		}
		t.marker = outbox.MarkerOf(control)
	}

	t.markerIsFresh = false
	t.mayHaveUnseen = false
	if t.marker == "" {
		t.lines.forgetPositions()
		t.hasMoreDue, t.nextDueAt = false, time.Time{}
		t.outboxWorker.recordMarker("", 0)
		return true, nil
	}

	t.hasMoreDue = true
	t.lines.isPartial = t.lines.isBehind() && now.Before(t.lines.wholeAt)
	if t.lines.isPartial {
		t.lines.next = min(t.lines.next, outbox.KeyAt(now.Add(-lateRows)))
		return false, nil
	}

	t.lines.next, t.lines.wholeAt, t.rowsRead = "", now.Add(wholeInterval), 0

	return false, nil
}

// readNew reads the rows behind lines.next.
func (t *outboxSession) readNew() error {
	limit := min(readLimit+len(t.inProgress), wholeLimit)
	if t.lines.isBehind() {
		limit = wholeLimit
	}
	return t.readPage(t.lines.next, limit)
}

// readPage reads the rows behind the key "after", and adds their events to the lines. It then
// records up to where the lines were read.
func (t *outboxSession) readPage(after string, limit int) error {
	page, err := t.rows.Read(t.ctx, t.sender.Now(), after, limit)
	if err != nil {
		return err
	}

	for _, r := range page.Damaged {
		t.store.Damages.Report(lane.DamagedRow{Partition: t.rows.Partition, Key: r.Key,
			Err: outbox.CheckRow(r)})
	}

	// lines that were behind, and whose first rows that are not in memory can be in the page
	var readOn []*line
	for _, l := range t.lines.list() {
		if l.isBehind() && l.readUpTo >= after {
			readOn = append(readOn, l)
		}
	}

	full := map[*line]bool{}
	for _, m := range page.Due {
		if !t.inProgress[mailKey(m)] {
			t.placeEvent(m, after, full)
		}
	}

	for _, l := range readOn {
		switch {
		case full[l]:
		case !page.More:
			l.behindSince, l.readUpTo, l.isSparse = time.Time{}, "", false
		case l.readUpTo < page.End:
			l.readUpTo, l.isSparse = page.End, true
		}
	}

	t.recordPage(after, page)

	return nil
}

// placeEvent adds an event to its line's queue, or leaves it in its row. It drops an event without
// a receiver. The map "full" has the lines that have left an event of this page in its row.
func (t *outboxSession) placeEvent(m outbox.Event, after string, full map[*line]bool) {
	to, ok := t.sender.resolveEndpoint(m)
	if !ok {
		t.sender.Log.Warn("notify: event dropped, its receiver is no longer in the settings",
			"lane", t.outbox.lane, "seq", m.Seq, "stage", string(m.Stage))
		t.inProgress[mailKey(m)] = true
		t.finishMail(m, outcomeDropped)
		return
	}

	l := t.findLine(to)

	// the line's earlier rows come first
	hasEarlier := full[l] || l.isBehind() && l.readUpTo < after
	if !hasEarlier && t.hasRoom(l) {
		t.inProgress[mailKey(m)] = true
		l.queue = append(l.queue, queuedMail{Event: m, endpoint: to})
		return
	}

	if now := t.sender.Now(); isOverdue(m, l, now) {
		t.inProgress[mailKey(m)] = true
		t.giveUp(m, response{reason: "the receiver took no request for the event in time"})
		return
	}

	if !hasEarlier {
		full[l] = true
		l.readOnlyUpTo(m.KeyBefore(), t.sender.Now())
	}
}

// recordPage records how far the outbox was read.
func (t *outboxSession) recordPage(after string, page outbox.Page) {
	if after > t.lines.next {
		return // rows between the two positions are not read yet
	}

	if after == t.lines.next && !t.lines.isPartial {
		t.rowsRead += page.RowsSeen
		t.outboxWorker.recordMarker(t.marker, t.rowsRead)
	} else {
		t.outboxWorker.recordMarker(t.marker, t.outboxWorker.rowsSeen)
	}

	t.lines.next = max(t.lines.next, page.End)
	if !page.More {
		t.hasMoreDue, t.nextDueAt = false, page.NextAt
	}

	if t.lines.isPartial && !t.lines.isBehind() {
		t.mayHaveUnseen = true // only a read from the beginning shows that the outbox is empty
	}
}
