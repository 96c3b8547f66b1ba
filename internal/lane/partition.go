package lane

import (
	"context"
	"errors"
	"slices"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// partition is the table partition of one lane of one epoch.
type partition struct {
	table   storage.Table
	name    string
	damages *Damages
}

// rowsOf returns the partition that has the rows of a message.
func (s *Store) rowsOf(id weir.ID) partition {
	return partition{s.Table, rows.Partition(id.Epoch, id.Lane), s.Damages}
}

// rowsOfLane returns the partition of a lane in the store's epoch.
func (s *Store) rowsOfLane(lane int) partition {
	return partition{s.Table, s.Partition(lane), s.Damages}
}

func (p partition) hasRow(ctx context.Context, key string) (bool, error) {
	_, err := p.table.Get(ctx, p.name, key)
	if storage.Is(err, storage.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// hasPrefix reports whether there is a row whose key begins with prefix.
func (p partition) hasPrefix(ctx context.Context, prefix string) (bool, error) {
	found, err := rows.ReadFirst(ctx, p.table,
		rows.WithPrefix(p.name, prefix, rows.Names(rows.Seq)), 1)
	return len(found) > 0, err
}

// maxControlReads is the largest number of reads in one readSnapshot.
const maxControlReads = 8

// readSnapshot reads the control rows and the markers between them as they were at one moment. An
// answer of one page is such a snapshot, but storage can split any answer into pages. Several pages
// count as a snapshot only if the next read returns the same rows with the same ETags.
func (p partition) readSnapshot(ctx context.Context) ([]storage.Row, error) {
	var before []storage.Row
	for range maxControlReads {
		found, pages, err := p.readControlRows(ctx)
		if err != nil || pages == 1 ||
			before != nil && slices.EqualFunc(before, found, sameVersion) {
			return found, err
		}
		before = found
	}

	return nil, &storage.Error{Op: "lane control", Kind: storage.Unavailable, Index: -1,
		Err: errNoSnapshot}
}

var errNoSnapshot = errors.New("storage cuts each answer, and the rows change between two")

func sameVersion(a, b storage.Row) bool { return a.Key == b.Key && a.ETag == b.ETag }

func (p partition) readControlRows(ctx context.Context) (found []storage.Row, pages int,
	err error) {
	q := storage.Query{Partition: p.name, From: rows.HeadKey, To: rows.ControlEnd}
	for page, err := range rows.Pages(ctx, p.table, q) {
		if err != nil {
			return nil, pages, err
		}
		found, pages = append(found, page.Rows...), pages+1
	}

	return found, pages, nil
}
