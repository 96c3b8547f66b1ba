package overview

import (
	"context"
	"slices"

	"weir/internal/lane"
	"weir/internal/overview/lists"
	"weir/internal/storage"
	"weir/internal/weir"
)

// laneCursor reads one lane for a search, the newest message first: it scans the log backwards, or, if
// an index of the lane lists the messages of the wanted stage, reads them by sequence number.
type laneCursor struct {
	*search
	store          *lane.Store
	lane           int
	isEarlierEpoch bool  // the epoch is over
	maxBytes       int   // of bodies, for the whole search
	maxBatch       int   // of bodies, in memory at the same time
	firstChunk     int64 // rows of the log to read first

	scan      *lists.BackwardScan // nil = only seqs are read
	scansDead bool                // scan reads the list of dead messages
	floor     int64               // scan ends here
	seqs      []int64             // to be read next, descending
	laterSeqs []int64             // to be read after scan

	matches []*lane.Entry // found, and not yet in the result

	bytesRead    int   // of bodies that were searched
	shareUsed    bool  // maxBytes is reached
	resumeBefore int64 // with shareUsed, the next page continues below
}

// seqsPerRead limits the messages read by one query.
const seqsPerRead = 50

// deadChunk is the span of the log for which the list of dead messages is read first; the list is
// usually sparse.
const deadChunk = 10_000

// maxWaitingPages limits the pages of held and scheduled messages that a search reads. If there are
// more, it searches the log instead.
const maxWaitingPages = 10

// openAt finds the start. before is the sequence number below which to continue; 0 = start with the
// newest.
func (s *laneCursor) openAt(ctx context.Context, before int64) error {
	control, err := s.store.ReadControl(ctx, s.lane)
	if storage.Is(err, storage.NotFound) && s.isEarlierEpoch {
		return nil // the lane of the earlier epoch was deleted
	}
	if err != nil {
		return err
	}
	looks, next := 1, control.Head.Next
	switch {
	case before > 0:
		next = min(before, next)
	case !s.filter.latestAcceptance().IsZero():
		var more int
		last := s.filter.latestAcceptance().Add(clockMargin)
		if next, more, err = s.store.FindAcceptedAfter(ctx, s.lane, next, last); err != nil {
			return err
		}
		looks += more
	}
	s.addCost(cost{queries: looks})
	if s.filter.namesSubmission() {
		s.openSubmission(next)
		return nil
	}
	s.scan = lists.Reader{Store: s.store}.ScanBackward(s.lane, next, s.firstChunk)
	switch {
	case s.filter.Stage == weir.Dead || s.filter.Fingerprint != "":
		s.scansDead, s.scan = true, lists.Reader{Store: s.store}.ScanBackward(s.lane, next, deadChunk)
	case s.filter.Stage == weir.Scheduled || s.filter.Stage == weir.Retrying || s.filter.Stage == weir.Queued:
		return s.openWaiting(ctx, control.Tail.Cursor)
	}
	return nil
}

// openSubmission lets the cursor read the one message of a key with the wanted idempotency key, if this lane has it
// below before.
func (s *laneCursor) openSubmission(before int64) {
	if at := s.submission; at.Epoch == s.store.Epoch && at.Lane == s.lane && 0 < at.Seq && at.Seq < before {
		s.seqs = []int64{at.Seq}
	}
}

// openWaiting lists the waiting messages below the lane's cursor from the held and scheduled ones.
// Only queued messages are also in the log, above the cursor.
func (s *laneCursor) openWaiting(ctx context.Context, cursor int64) error {
	standing, err := lists.Reader{Store: s.store}.ReadWaiting(ctx, s.lane, maxWaitingPages)
	if err != nil {
		return err
	}
	s.addCost(cost{queries: 1, rows: len(standing.Held) + len(standing.DueTimes)})
	if !standing.IsComplete {
		return nil
	}
	var picks []int64
	for _, h := range standing.Held {
		if h.Tried == (s.filter.Stage == weir.Retrying) {
			picks = append(picks, h.Seq)
		}
	}
	if s.filter.Stage == weir.Scheduled {
		picks = picks[:0]
		for _, d := range standing.DueTimes {
			picks = append(picks, d.Seq)
		}
	}
	s.floor = s.scan.Before
	if s.filter.Stage == weir.Queued {
		s.floor = cursor
	}
	slices.Sort(picks)
	slices.Reverse(picks)
	s.laterSeqs = slices.DeleteFunc(picks, func(seq int64) bool { return seq >= min(s.floor, s.scan.Before) })
	return nil
}

// isScanDone reports whether the scan is at its end.
func (s *laneCursor) isScanDone() bool { return s.scan == nil || s.scan.Before <= max(s.floor, 1) }

// isDone reports whether all was read.
func (s *laneCursor) isDone() bool {
	return !s.shareUsed && len(s.seqs) == 0 && len(s.laterSeqs) == 0 && s.isScanDone()
}

// discardRest drops the rest, because none of it matches.
func (s *laneCursor) discardRest() { s.scan, s.seqs, s.laterSeqs = nil, nil, nil }

// nextBefore returns the sequence number below which the next page continues.
func (s *laneCursor) nextBefore() int64 {
	switch {
	case len(s.matches) > 0:
		return s.matches[0].Seq() + 1
	case s.shareUsed:
		return s.resumeBefore
	case len(s.seqs) > 0:
		return s.seqs[0] + 1
	case !s.isScanDone():
		return s.scan.Before
	case len(s.laterSeqs) > 0:
		return s.laterSeqs[0] + 1
	}
	return 1
}

// readMore reads the next chunk and keeps matches. It may find none although more messages are left.
func (s *laneCursor) readMore(ctx context.Context) error {
	if s.scansDead && len(s.seqs) == 0 {
		if err := s.readDeadRows(ctx); err != nil {
			return err
		}
	}
	if len(s.seqs) == 0 && s.isScanDone() {
		s.seqs, s.laterSeqs = s.laterSeqs, nil
	}
	var entries []*lane.Entry
	var err error
	switch {
	case len(s.seqs) > 0:
		entries, err = s.readBySeq(ctx)
	case !s.scansDead:
		entries, err = s.readLogChunk(ctx)
	}
	if err != nil {
		return err
	}
	return s.keepMatches(ctx, entries)
}

func (s *laneCursor) readDeadRows(ctx context.Context) error {
	looks, rows := s.scan.Queries, s.scan.RowsRead
	list, err := s.scan.ReadDead(ctx)
	s.addCost(cost{s.scan.Queries - looks, s.scan.RowsRead - rows})
	for _, d := range list {
		if s.filter.matchesDead(d) {
			s.seqs = append(s.seqs, d.Seq)
		}
	}
	return err
}

func (s *laneCursor) readBySeq(ctx context.Context) ([]*lane.Entry, error) {
	n := min(len(s.seqs), seqsPerRead)
	entries, looks, err := s.store.ReadMany(ctx, s.lane, s.seqs[:n])
	s.seqs = s.seqs[n:]
	if s.scansDead {
		looks = 0 // most of them are matches, so the limit bounds their number
	}
	s.addCost(cost{looks, len(entries)})
	return entries, err
}

func (s *laneCursor) readLogChunk(ctx context.Context) ([]*lane.Entry, error) {
	looks, rows := s.scan.Queries, s.scan.RowsRead
	entries, err := s.scan.Read(ctx)
	s.addCost(cost{s.scan.Queries - looks, s.scan.RowsRead - rows})
	return slices.DeleteFunc(entries, func(e *lane.Entry) bool { return e.Seq() < s.floor }), err
}

func (s *laneCursor) keepMatches(ctx context.Context, entries []*lane.Entry) error {
	var found []*lane.Entry
	for _, e := range entries {
		if s.filter.isBeforeSpan(e) {
			s.discardRest()
			break
		}
		copied := s.isEarlierEpoch && (e.Stage == weir.Scheduled || e.Stage == weir.Dead)
		if !copied && s.filter.matches(e) {
			found = append(found, e)
		}
	}
	if s.filter.Text == "" {
		s.matches = found
		return nil
	}
	return s.filterByText(ctx, found)
}

// filterByText keeps the messages with the text. If maxBytes is reached the page ends there, and the next
// one continues there.
func (s *laneCursor) filterByText(ctx context.Context, found []*lane.Entry) error {
	hits := map[*lane.Entry]bool{}
	var closed []*lane.Entry // whose bodies must be searched
	held := 0
	for i, e := range found {
		size := e.Message.Size
		switch {
		case s.matcher.matchesRow(e):
			hits[e] = true
		case e.IsBodyInBlob() || size > maxSearchBytes:
			s.countSkippedBody()
		case s.bytesRead > 0 && s.bytesRead+size > s.maxBytes:
			s.shareUsed, s.resumeBefore, found = true, e.Seq()+1, found[:i]
		default:
			if held > 0 && held+size > s.maxBatch {
				if err := s.searchBodies(ctx, closed, hits); err != nil {
					return err
				}
				closed, held = nil, 0
			}
			s.bytesRead, held = s.bytesRead+size, held+size
			closed = append(closed, e)
		}
		if s.shareUsed {
			break
		}
	}
	if err := s.searchBodies(ctx, closed, hits); err != nil {
		return err
	}
	s.matches = slices.DeleteFunc(found, func(e *lane.Entry) bool { return !hits[e] })
	return nil
}

// searchBodies adds the messages whose body has the text to hits, and keeps no body.
func (s *laneCursor) searchBodies(ctx context.Context, closed []*lane.Entry, hits map[*lane.Entry]bool) error {
	looks, err := s.store.LoadInline(ctx, s.lane, closed)
	if err != nil {
		return err
	}
	s.addCost(cost{queries: looks})
	for _, e := range closed {
		hits[e] = s.matchesReadableBody(ctx, e)
		e.Message.Body = nil
	}
	return nil
}

// matchesReadableBody reports whether a body has the text outside of the values that readers may not see. Otherwise a
// reader could find a value by asking for each possible one. A body without the text is not parsed.
func (s *laneCursor) matchesReadableBody(ctx context.Context, e *lane.Entry) bool {
	if !s.matcher.matchesBody(e.Message.Body) {
		return false
	}
	if s.redactor == nil {
		return true
	}
	m := e.Message
	_, err := s.redactor.HideValues(ctx, &m)
	return err == nil && s.matcher.matchesBody(m.Body)
}
