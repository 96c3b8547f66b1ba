package lists

import (
	"context"
	"slices"

	"weir/internal/lane"
	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// BackwardScan reads a lane from its newest message to its oldest. Storage returns rows only in
// ascending order, so the scan reads chunks of sequence numbers, and reverses each chunk. If a
// chunk has few rows, for example because retention has removed the others, the next chunk covers
// more sequence numbers.
type BackwardScan struct {
	Before   int64 // sequence numbers below Before are not read yet; 1 = all are read
	Queries  int   // queries made so far
	RowsRead int   // rows read so far

	store     *lane.Store
	number    int   // number of the lane
	chunkSize int64 // sequence numbers in the next chunk
}

const (
	// maxChunk is the largest number of rows that storage returns in one answer. A log without gaps
	// has one row for each sequence number, so a chunk of maxChunk sequence numbers needs one
	// query.
	maxChunk = 1000
	// maxSpan is the largest number of sequence numbers in a chunk. It prevents overflows.
	maxSpan = 1 << 40
)

// ScanBackward returns a scan of the messages whose sequence numbers are lower than before. The
// first chunk has at most span sequence numbers.
func (l Reader) ScanBackward(number int, before, span int64) *BackwardScan {
	return &BackwardScan{Before: max(before, 1), store: l.Store, number: number,
		chunkSize: min(max(span, 1), maxSpan)}
}

// Lane returns the number of the lane.
func (p *BackwardScan) Lane() int { return p.number }

// Read reads the messages of the next chunk, newest first. The result can be empty although older
// messages exist: call Read until Before is 1.
func (p *BackwardScan) Read(ctx context.Context) ([]*lane.Entry, error) {
	found, err := p.readChunk(ctx, rows.MessagePrefix, lane.ListColumns)
	if err != nil {
		return nil, err
	}

	entries, err := p.store.EntriesFrom(ctx, p.number, found)
	p.Queries++ // EntriesFrom usually makes one query
	slices.Reverse(entries)

	return entries, err
}

// ReadDead reads the dead messages of the next chunk, newest first. The result can be empty
// although older dead messages exist: call ReadDead until Before is 1.
func (p *BackwardScan) ReadDead(ctx context.Context) ([]DeadRow, error) {
	found, err := p.readChunk(ctx, rows.DeadPrefix, nil)
	if err != nil {
		return nil, err
	}

	var dead []DeadRow
	for _, r := range slices.Backward(found) {
		if d, isWhole := (Reader{Store: p.store}).deadFrom(p.number, r); isWhole {
			dead = append(dead, d)
		}
	}

	return dead, nil
}

// readChunk reads the rows of the next chunk, oldest first, and sets Before to the chunk's first
// sequence number.
func (p *BackwardScan) readChunk(ctx context.Context, prefix string,
	columns []string) ([]storage.Row, error) {
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

// readWhole reads all rows of a chunk. If a chunk of more than maxChunk sequence numbers has more
// rows than one page, readWhole returns no rows and dense = true: the caller must try a smaller
// chunk.
func (p *BackwardScan) readWhole(ctx context.Context, q storage.Query) (found []storage.Row,
	dense bool, err error) {
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

// growChunk makes the next chunk larger if this chunk had few rows, or had fewer than maxChunk
// sequence numbers. The chunk grows in the second case, too, because a caller reads another chunk
// only if it needs more messages.
func (p *BackwardScan) growChunk(found int) {
	switch {
	case int64(found) < p.chunkSize/4:
		p.chunkSize = min(8*p.chunkSize, maxSpan)
	case p.chunkSize < maxChunk:
		p.chunkSize = min(4*p.chunkSize, maxChunk)
	}
}
