package lane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// BackwardScan reads a lane from its newest messages back. Storage returns rows in ascending order only, so
// the scan reads the log in chunks, each of them forwards, and returns each chunk backwards. If retention
// has left few messages, the chunks grow.
type BackwardScan struct {
	Before   int64 // sequence numbers below this are still to be read; 1 = none
	Queries  int   // so far
	RowsRead int   // so far

	store     *Store
	lane      int
	chunkSize int64 // sequence numbers in the next chunk
}

const (
	// maxChunk is the largest number of sequence numbers in a chunk of a full log: storage returns it in one
	// answer.
	maxChunk = 1000
	// maxSpan prevents overflows.
	maxSpan = 1 << 40
)

// ScanBackward returns a scan of the messages below a sequence number. Its first chunk has span numbers.
func (s *Store) ScanBackward(lane int, before, span int64) *BackwardScan {
	return &BackwardScan{Before: max(before, 1), store: s, lane: lane, chunkSize: min(max(span, 1), maxSpan)}
}

// Lane returns the number of the lane.
func (p *BackwardScan) Lane() int { return p.lane }

// scanColumns are the columns for a search. Body and attempts are not among them.
var scanColumns = append(slices.Clone(headerColumns), rows.Names(rows.FinishedAt, rows.NextAttemptAt, rows.SupersededBy,
	rows.Blob, rows.EditedBlob, rows.EditNote, rows.ReplayRefused)...)

// Read reads the messages of the next chunk, newest first. A chunk may be empty although earlier ones are not.
func (p *BackwardScan) Read(ctx context.Context) ([]*Entry, error) {
	found, err := p.readChunk(ctx, rows.MessagePrefix, scanColumns)
	if err != nil {
		return nil, err
	}
	entries, err := p.store.entriesFrom(ctx, p.lane, found)
	p.Queries++ // for the deliveries in d_ rows, usually
	slices.Reverse(entries)
	return entries, err
}

// ReadDead reads the dead messages of the next chunk, newest first. A chunk may be empty although earlier ones
// are not.
func (p *BackwardScan) ReadDead(ctx context.Context) ([]DeadRow, error) {
	found, err := p.readChunk(ctx, rows.DeadPrefix, nil)
	if err != nil {
		return nil, err
	}
	dead := make([]DeadRow, len(found))
	for i, r := range found {
		if dead[len(found)-1-i], err = deadFrom(r); err != nil {
			return nil, err
		}
	}
	return dead, nil
}

// readChunk reads the rows of the next chunk, oldest first, and moves Before down to its beginning.
func (p *BackwardScan) readChunk(ctx context.Context, prefix string, columns []string) ([]storage.Row, error) {
	if p.Before <= 1 {
		return nil, nil
	}
	for {
		low := max(p.Before-p.chunkSize, 1)
		q := storage.Query{Partition: p.store.partitionOf(p.lane), From: prefix + rows.SeqPos(low),
			To: prefix + rows.SeqPos(p.Before), Columns: columns}
		found, dense, err := p.readWhole(ctx, q)
		if err != nil {
			return nil, err
		}
		if dense {
			p.chunkSize = max(p.chunkSize/4, maxChunk)
			continue
		}
		p.Before = low
		p.growChunk(len(found))
		return found, nil
	}
}

// readWhole reads a whole chunk. It stops, and dense is true, if a chunk that was to bridge a gap in the log
// has more rows than one page.
func (p *BackwardScan) readWhole(ctx context.Context, q storage.Query) (found []storage.Row, dense bool, err error) {
	for page, err := range rows.Pages(ctx, p.store.Table, q) {
		if err != nil {
			return nil, false, err
		}
		p.Queries++
		p.RowsRead += len(page.Rows)
		if found = append(found, page.Rows...); page.More && p.chunkSize > maxChunk {
			return nil, true, nil
		}
	}
	return found, false, nil
}

// growChunk makes the next chunk larger: a caller that continues wants more than the first.
func (p *BackwardScan) growChunk(found int) {
	switch {
	case int64(found) < p.chunkSize/4:
		p.chunkSize = min(8*p.chunkSize, maxSpan)
	case p.chunkSize < maxChunk:
		p.chunkSize = min(4*p.chunkSize, maxChunk)
	}
}

// entriesFrom returns the entries of header-only m_ rows in the order of the log. It completes messages whose
// delivery only a d_ row has.
func (s *Store) entriesFrom(ctx context.Context, lane int, found []storage.Row) ([]*Entry, error) {
	entries := make([]*Entry, len(found))
	low, high := int64(0), int64(0)
	for i, r := range found {
		e, err := s.entryFrom(lane, r)
		if err != nil {
			return nil, err
		}
		e.isHeaderOnly = true
		entries[i] = e
		if e.Stage == weir.Queued && !e.IsHeld {
			if low == 0 {
				low = e.Seq()
			}
			high = e.Seq()
		}
	}
	if low == 0 {
		return entries, nil
	}
	packed, err := s.readPackedRows(ctx, lane, low, high)
	for _, e := range entries {
		if e.Stage == weir.Queued && !e.IsHeld {
			e.findInPacked(packed)
		}
	}
	return entries, err
}

// findInPacked looks for the entry's delivery in d_ rows.
func (e *Entry) findInPacked(found []packedRow) {
	for _, f := range found {
		if one, ok := f.bySeq[e.Seq()]; ok {
			e.setDelivered(one, f.etag)
		}
	}
}

// manyGap is the largest distance of two sequence numbers that ReadMany reads with one query.
const manyGap = 32

// ReadMany reads messages without bodies, by falling sequence numbers. It returns those that still exist, and
// the number of queries.
func (s *Store) ReadMany(ctx context.Context, lane int, seqs []int64) (entries []*Entry, looks int, err error) {
	var groups [][]int64
	for _, seq := range seqs {
		if n := len(groups); n > 0 && groups[n-1][len(groups[n-1])-1]-seq <= manyGap && groups[n-1][0]-seq < maxChunk {
			groups[n-1] = append(groups[n-1], seq)
			continue
		}
		groups = append(groups, []int64{seq})
	}
	found := make([][]*Entry, len(groups))
	err = ForEach(len(groups), func(i int) (err error) {
		found[i], err = s.readGroup(ctx, lane, groups[i])
		return err
	})
	return slices.Concat(found...), len(groups), err
}

// readGroup reads messages with neighbouring sequence numbers.
func (s *Store) readGroup(ctx context.Context, lane int, seqs []int64) ([]*Entry, error) {
	found, _, err := rows.ReadPages(ctx, s.Table,
		rows.Messages(s.partitionOf(lane), seqs[len(seqs)-1], seqs[0]+1, scanColumns), maxChunk)
	if err != nil {
		return nil, err
	}
	wanted := found[:0]
	for _, r := range found {
		seq, err := rows.SeqOfMessage(r.Key)
		if err != nil {
			return nil, fmt.Errorf("lane: row %q: %w", r.Key, err)
		}
		if slices.Contains(seqs, seq) {
			wanted = append(wanted, r)
		}
	}
	entries, err := s.entriesFrom(ctx, lane, wanted)
	slices.Reverse(entries)
	return entries, err
}

// FindAcceptedAfter returns a sequence number from which on all messages of a log were accepted after at. Up to
// some hundreds before it may have been, too. Copies from an earlier epoch come first in a log, and count as
// accepted before. The log ends before next. looks is the number of queries.
func (s *Store) FindAcceptedAfter(ctx context.Context, lane int, next int64, at time.Time) (seq int64, looks int,
	err error) {
	low, high := int64(1), next
	for high-low > maxChunk/2 {
		mid := low + (high-low)/2
		page, err := s.Table.Range(ctx, storage.Query{Partition: s.partitionOf(lane), From: rows.MessageKey(mid),
			To: rows.MessageKey(high), Limit: 1, Columns: rows.Names(rows.AcceptedAt, rows.Origin)})
		if err != nil {
			return 0, looks, err
		}
		looks++
		if len(page.Rows) == 0 {
			high = mid
			continue
		}
		v := page.Rows[0].Values
		if rows.Origin.Of(v) == "" && rows.AcceptedAt.Of(v).After(at) {
			high = mid
			continue
		}
		if low, err = rows.SeqOfMessage(page.Rows[0].Key); err != nil {
			return 0, looks, err
		}
		low++
	}
	return high, looks, nil
}
