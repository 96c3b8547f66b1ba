package overview

import (
	"context"
	"slices"

	"weir/internal/lane"
	"weir/internal/overview/lists"
	"weir/internal/storage"
	"weir/internal/weir"
)

// laneCursor reads one lane for a search, the newest message first. It scans the log backwards. If other rows of the
// lane list messages of the wanted stage, it reads these messages by sequence number, and scans only the part of the
// log that can have further ones.
type laneCursor struct {
	*search
	store          *lane.Store
	lane           int
	isEarlierEpoch bool  // the store is of an epoch that is over
	maxBytes       int   // largest number of body bytes that this cursor reads; the first body may be larger
	maxBatch       int   // largest number of body bytes in memory at the same time; a single body may be larger
	firstChunk     int64 // sequence numbers in the first chunk of the log

	scan      *lists.BackwardScan // nil = only seqs and laterSeqs are read
	scansDead bool                // scan reads the list of dead messages
	floor     int64               // lowest sequence number that is taken from scan
	seqs      []int64             // sequence numbers to read next, descending
	laterSeqs []int64             // sequence numbers to read after scan, descending

	matches []*lane.Entry // found, and not yet in the result

	bytesRead    int   // bytes of bodies that were read
	shareUsed    bool  // maxBytes is reached
	resumeBefore int64 // if shareUsed is set, the next page continues below this sequence number
}

// seqsPerRead limits the messages that one call of Store.ReadMany reads.
const seqsPerRead = 50

// The first read of dead messages covers deadChunk sequence numbers. This number is large, because usually few messages
// are dead.
const deadChunk = 10_000

// In a lane, a search reads at most maxWaitingPages pages of held messages, and at most maxWaitingPages pages of
// scheduled messages. If a lane has more pages of either kind, the search reads the log instead.
const maxWaitingPages = 10

// openAt prepares the cursor to read the messages below a sequence number; 0 = all messages.
func (s *laneCursor) openAt(ctx context.Context, before int64) error {
	control, err := s.store.ReadControl(ctx, s.lane)
	if storage.Is(err, storage.NotFound) && s.isEarlierEpoch {
		return nil // the lane of the earlier epoch was deleted
	}
	if err != nil {
		return err
	}
	queries, next := 1, control.Head.Next
	switch {
	case before > 0:
		next = min(before, next)
	case !s.filter.latestAcceptance().IsZero():
		var more int
		last := s.filter.latestAcceptance().Add(clockMargin)
		if next, more, err = s.store.FindAcceptedAfter(ctx, s.lane, next, last); err != nil {
			return err
		}
		queries += more
	}
	s.addCost(cost{queries: queries})
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

// openSubmission lets the cursor read only the message with the wanted key and idempotency key. If this lane does not
// have that message below the given sequence number, the cursor reads nothing.
func (s *laneCursor) openSubmission(before int64) {
	if at := s.submission; at.Epoch == s.store.Epoch && at.Lane == s.lane && 0 < at.Seq && at.Seq < before {
		s.seqs = []int64{at.Seq}
	}
}

// openWaiting lets the cursor read the messages of a waiting stage. Scheduled and retrying messages are all among the
// scheduled and held rows, so the log is not scanned for them. Queued messages are also in the log, from the lane's
// cursor on, so the log is scanned down to the lane's cursor. If the held or the scheduled rows have more than
// maxWaitingPages pages, the whole log is scanned instead.
func (s *laneCursor) openWaiting(ctx context.Context, cursor int64) error {
	waiting, err := lists.Reader{Store: s.store}.ReadWaiting(ctx, s.lane, maxWaitingPages)
	if err != nil {
		return err
	}
	s.addCost(cost{queries: 1, rows: len(waiting.Held) + len(waiting.DueTimes)})
	if !waiting.IsComplete {
		return nil
	}
	var picks []int64
	for _, h := range waiting.Held {
		if h.Tried == (s.filter.Stage == weir.Retrying) {
			picks = append(picks, h.Seq)
		}
	}
	if s.filter.Stage == weir.Scheduled {
		picks = picks[:0]
		for _, d := range waiting.DueTimes {
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

// isScanDone reports whether the scan is at its end, or the cursor has none.
func (s *laneCursor) isScanDone() bool { return s.scan == nil || s.scan.Before <= max(s.floor, 1) }

// isDone reports whether the cursor has read all its messages.
func (s *laneCursor) isDone() bool {
	return !s.shareUsed && len(s.seqs) == 0 && len(s.laterSeqs) == 0 && s.isScanDone()
}

// discardRest ends the reading, because no earlier message matches.
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

// readMore reads the next chunk, and puts its matching messages into matches. A chunk may have no match although later
// chunks have one.
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
	queries, rows := s.scan.Queries, s.scan.RowsRead
	list, err := s.scan.ReadDead(ctx)
	s.addCost(cost{s.scan.Queries - queries, s.scan.RowsRead - rows})
	for _, d := range list {
		if s.filter.matchesDead(d) {
			s.seqs = append(s.seqs, d.Seq)
		}
	}
	return err
}

func (s *laneCursor) readBySeq(ctx context.Context) ([]*lane.Entry, error) {
	n := min(len(s.seqs), seqsPerRead)
	entries, queries, err := s.store.ReadMany(ctx, s.lane, s.seqs[:n])
	s.seqs = s.seqs[n:]
	if s.scansDead {
		queries = 0 // not counted: most of these messages match, so the size of the page bounds the queries
	}
	s.addCost(cost{queries, len(entries)})
	return entries, err
}

func (s *laneCursor) readLogChunk(ctx context.Context) ([]*lane.Entry, error) {
	queries, rows := s.scan.Queries, s.scan.RowsRead
	entries, err := s.scan.Read(ctx)
	s.addCost(cost{s.scan.Queries - queries, s.scan.RowsRead - rows})
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

// filterByText puts the messages with the text into matches. When the cursor has used up maxBytes, the page of the
// search ends, and the next page continues with the first message whose body was not read.
func (s *laneCursor) filterByText(ctx context.Context, found []*lane.Entry) error {
	hits := map[*lane.Entry]bool{}
	var batch []*lane.Entry // messages whose bodies must be searched
	batchBytes := 0
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
			if batchBytes > 0 && batchBytes+size > s.maxBatch {
				if err := s.searchBodies(ctx, batch, hits); err != nil {
					return err
				}
				batch, batchBytes = nil, 0
			}
			s.bytesRead, batchBytes = s.bytesRead+size, batchBytes+size
			batch = append(batch, e)
		}
		if s.shareUsed {
			break
		}
	}
	if err := s.searchBodies(ctx, batch, hits); err != nil {
		return err
	}
	s.matches = slices.DeleteFunc(found, func(e *lane.Entry) bool { return !hits[e] })
	return nil
}

// searchBodies records in hits, for each message of the batch, whether its body has the text. It removes the bodies
// from memory.
func (s *laneCursor) searchBodies(ctx context.Context, batch []*lane.Entry, hits map[*lane.Entry]bool) error {
	queries, err := s.store.LoadInline(ctx, s.lane, batch)
	if err != nil {
		return err
	}
	s.addCost(cost{queries: queries})
	for _, e := range batch {
		hits[e] = s.matchesReadableBody(ctx, e)
		e.Message.Body = nil
	}
	return nil
}

// matchesReadableBody reports whether a body has the text outside of the values that readers may not see. It returns
// false if these values cannot be hidden. If the hidden values were searched, a reader could find out a value by
// searching for each possible value. A body without the text is not parsed.
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
