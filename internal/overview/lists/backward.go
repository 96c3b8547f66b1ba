package lists

import (
	"context"
	"slices"

	"weir/internal/lane"
	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// BackwardScan reads a lane from its newest messages back. Storage returns rows in ascending order only, so
// the scan reads the log in chunks, each of them forwards, and returns each chunk backwards. If retention
// has left few messages, the chunks grow.
type BackwardScan struct {
	Before   int64 // sequence numbers below this are still to be read; 1 = none
	Queries  int   // so far
	RowsRead int   // so far

	store     *lane.Store
	number    int   // of the lane
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
func (l Reader) ScanBackward(number int, before, span int64) *BackwardScan {
	return &BackwardScan{Before: max(before, 1), store: l.Store, number: number, chunkSize: min(max(span, 1), maxSpan)}
}

// Lane returns the number of the lane.
func (p *BackwardScan) Lane() int { return p.number }

// Read reads the messages of the next chunk, newest first. A chunk may be empty although earlier ones are not.
func (p *BackwardScan) Read(ctx context.Context) ([]*lane.Entry, error) {
	found, err := p.readChunk(ctx, rows.MessagePrefix, lane.ListColumns)
	if err != nil {
		return nil, err
	}
	entries, err := p.store.EntriesFrom(ctx, p.number, found)
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
		q := storage.Query{Partition: p.store.Partition(p.number), From: prefix + rows.SeqPos(low),
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
