package overview

import (
	"context"
	"slices"

	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/storage"
	"weir/internal/weir"
)

// laneCursor reads one lane for a search, the newest message first. Usually it scans the log
// backwards. But for dead, scheduled, retrying and queued messages, the lane has rows that list
// such messages. A laneCursor reads the listed messages by sequence number, and scans only the part
// of the log that can have further matching messages.
type laneCursor struct {
	*search
	store          *lane.Store
	lane           int
	isEarlierEpoch bool // store is of an earlier epoch
	// limit of the body bytes that are read; the first body is read even if it is larger
	maxBytes   int
	maxBatch   int   // limit of the body bytes in memory at a time; a single body can be larger
	firstChunk int64 // number of sequence numbers in the first chunk of the log

	scan      *lists.BackwardScan // nil = only seqs and laterSeqs are read
	scansDead bool                // scan reads the list of dead messages
	floor     int64               // lower sequence numbers are not taken from scan
	seqs      []int64             // sequence numbers to read next, descending
	laterSeqs []int64             // sequence numbers to read after scan, descending

	matches []*lane.Entry // matching messages that are not in the result yet

	bytesRead    int   // bytes of bodies that were read
	shareUsed    bool  // the next body would exceed maxBytes
	resumeBefore int64 // if shareUsed is true, the next page continues below this sequence number
}

// seqsPerRead limits the messages in one call of Store.ReadMany.
const seqsPerRead = 50

// The first chunk of dead messages covers deadChunk sequence numbers. This number is large, because
// usually few messages are dead.
const deadChunk = 10_000

// In each lane, a search reads at most maxWaitingPages pages of rows that list held messages, and
// as many pages of rows that list scheduled messages. If the lane has more such rows, the search
// scans the whole log instead.
const maxWaitingPages = 10

// openAt prepares s to read the messages whose sequence numbers are lower than "before". If
// "before" is 0, s begins with the newest message that can match.
func (s *laneCursor) openAt(ctx context.Context, before int64) error {
	control, err := s.store.ReadControl(ctx, s.lane)
	if storage.Is(err, storage.NotFound) && s.isEarlierEpoch {
		return nil // retention has removed the lanes of this earlier epoch
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
		s.scansDead, s.scan = true,
			lists.Reader{Store: s.store}.ScanBackward(s.lane, next, deadChunk)
	case s.filter.Stage == weir.Scheduled || s.filter.Stage == weir.Retrying ||
		s.filter.Stage == weir.Queued:
		return s.openWaiting(ctx, control.Tail.Cursor)
	}

	return nil
}

// openSubmission prepares s to read only the message with the id s.submission. If this message is
// in another lane, or if its sequence number is "before" or higher, s reads nothing.
func (s *laneCursor) openSubmission(before int64) {
	if at := s.submission; at.Epoch == s.store.Epoch && at.Lane == s.lane && 0 < at.Seq &&
		at.Seq < before {
		s.seqs = []int64{at.Seq}
	}
}

// openWaiting prepares s to read scheduled, retrying or queued messages. The argument "cursor" is
// the lane's cursor.
//   - Rows of the lane list all scheduled and all retrying messages, so s does not scan the log for
//     them.
//   - Queued messages are in the log from the lane's cursor on, or held. So s scans the log down to
//     the lane's cursor, and then reads the held messages with lower sequence numbers.
//
// If the lane has too many rows that list held or scheduled messages (see maxWaitingPages), s scans
// the whole log instead.
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
	s.laterSeqs = slices.DeleteFunc(picks,
		func(seq int64) bool { return seq >= min(s.floor, s.scan.Before) })

	return nil
}

// isScanDone reports whether s reads nothing more from s.scan.
func (s *laneCursor) isScanDone() bool { return s.scan == nil || s.scan.Before <= max(s.floor, 1) }

// isDone reports whether s has read all messages that can match.
func (s *laneCursor) isDone() bool {
	return !s.shareUsed && len(s.seqs) == 0 && len(s.laterSeqs) == 0 && s.isScanDone()
}

// discardRest makes s read no further messages. The caller has found that no earlier message can
// match.
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

// readMore reads the next chunk, and puts the matching messages into s.matches. Even if this chunk
// has no match, further chunks can have matches.
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
		// not counted: most of these messages match, so the size of the page bounds the queries
		queries = 0
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

// filterByText puts those of the found messages that contain the wanted text into s.matches. At the
// first body that would exceed maxBytes, it stops, and sets shareUsed. The next page of the search
// continues with the message of that body.
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

// searchBodies loads the bodies of a batch of messages, and records in hits whether each body
// contains the wanted text. It then drops the bodies, to free memory.
func (s *laneCursor) searchBodies(ctx context.Context, batch []*lane.Entry,
	hits map[*lane.Entry]bool) error {
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

// matchesReadableBody reports whether a body contains the wanted text outside of redacted values.
// If a search looked into redacted values, a caller could find out a value by trying each possible
// text. If the redactor cannot hide the values, matchesReadableBody returns false. The redactor is
// called only for bodies that contain the text.
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
