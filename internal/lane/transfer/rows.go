package transfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"weir/internal/clock"
	"weir/internal/lane/rows"
	"weir/internal/storage"
)

const (
	// guardKey is the key of the guard row of a partition while it is copied. It sorts behind the
	// keys of all other rows.
	guardKey = "~copy"
	// guardColumn is the only column of a guard, whose ETag alone counts.
	guardColumn = "Guard"
	// partitionTries bounds how often a partition is begun anew after a write with an unknown
	// result.
	partitionTries = 10
)

func (m Mover) listPartitions(ctx context.Context, s Store) (names []string, err error) {
	err = m.retry(ctx, func() error {
		names = names[:0]
		return s.Partitions.Partitions(ctx, func(name string) error {
			names = append(names, name)
			return nil
		})
	})

	return names, err
}

// bothPartitions returns the names of the partitions of both stores, in order.
func (m Mover) bothPartitions(ctx context.Context) ([]string, error) {
	ofFrom, err := m.listPartitions(ctx, m.From)
	if err != nil {
		return nil, err
	}

	ofTo, err := m.listPartitions(ctx, m.To)
	if err != nil {
		return nil, err
	}

	names := slices.Concat(ofFrom, ofTo)
	slices.Sort(names)

	return slices.Compact(names), nil
}

func (c *comparison) compareRows(ctx context.Context) error {
	names, err := c.bothPartitions(ctx)
	for _, name := range names {
		if err == nil {
			err = c.comparePartition(ctx, name)
		}
		if err != nil {
			return fmt.Errorf("partition %s: %w", name, err)
		}
	}

	return err
}

// comparePartition compares a partition, and begins anew if the result of a write is unknown. The
// sums are only right without writes.
func (c *comparison) comparePartition(ctx context.Context, name string) error {
	for try := 1; ; try++ {
		w := &partitionWriter{comparison: c, partition: name}
		err := mergeByName(c.scanWanted(ctx, name), c.scanRows(ctx, c.To.Table, name),
			func(r storage.Row) string { return r.Key },
			func(from, to *storage.Row) error { return c.compareRow(ctx, w, from, to) })
		if err == nil {
			err = w.flush(ctx)
		}

		if err == nil || !c.mayWrite || try == partitionTries || !isUnsettled(err) ||
			!clock.Sleep(ctx, firstPause) {
			return err
		}
	}
}

// isUnsettled reports whether a transaction was perhaps done, or was refused because an earlier one
// was done after all.
func isUnsettled(err error) bool {
	switch storage.KindOf(err) {
	case storage.Ambiguous, storage.Unavailable, storage.Throttled, storage.Precondition,
		storage.Conflict,
		storage.NotFound:
		return true
	}
	return false
}

func (c *comparison) compareRow(ctx context.Context, w *partitionWriter, from,
	to *storage.Row) error {
	var ofFrom, ofTo []byte
	if from != nil {
		ofFrom = encodeRow(w.partition, *from)
		c.rows[0].add(ofFrom, int64(len(ofFrom)))
	}

	if to != nil {
		ofTo = encodeRow(w.partition, *to)
		c.rows[1].add(ofTo, int64(len(ofTo)))
	}

	switch {
	case bytes.Equal(ofFrom, ofTo):
		return nil
	case !c.mayWrite:
		c.differences++
		return nil
	case from == nil:
		return w.add(ctx, storage.Op{Kind: storage.Delete, Key: to.Key})
	}

	return w.add(ctx, storage.Op{Kind: storage.Upsert, Key: from.Key, Values: from.Values})
}

// scanRows yields the rows of a partition, without the guard and without the record of lanes.
func (m Mover) scanRows(ctx context.Context, table storage.Table,
	partition string) iter.Seq2[storage.Row, error] {
	return func(yield func(storage.Row, error) bool) {
		q := storage.Query{Partition: partition}
		for more := true; more; {
			var page storage.Page
			err := m.retry(ctx, func() (err error) {
				page, err = table.Range(ctx, q)
				return err
			})
			if err != nil {
				yield(storage.Row{}, err)
				return
			}

			for _, row := range page.Rows {
				q.After = row.Key
				isOwn := row.Key == guardKey || partition == rows.MetaPartition &&
					row.Key == rows.LanesKey
				if !isOwn && !yield(row, nil) {
					return
				}
			}

			more = page.More
		}
	}
}

// scanWanted yields the rows of a partition of the source as the target is to have them.
func (c *comparison) scanWanted(ctx context.Context,
	partition string) iter.Seq2[storage.Row, error] {
	return func(yield func(storage.Row, error) bool) {
		for row, err := range c.scanRows(ctx, c.From.Table, partition) {
			if err == nil {
				adapt(&row, c.isOpen[partition], partition == rows.MetaPartition)
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// adapt changes a row of the source to that of the target. Lanes are open there, and the next
// holder looks for messages that became due meanwhile, as after a seal that was removed. A walk of
// the clean-up over blobs begins anew, because the marker of a listing is storage's own.
func adapt(row *storage.Row, isOpenLane, isMeta bool) {
	switch {
	case isOpenLane && row.Key == rows.HeadKey:
		row.Values = maps.Clone(row.Values)
		rows.Put(row.Values, rows.IsSealed.Is(false),
			rows.RequestSeq.Is(rows.RequestSeq.Of(row.Values)+1))

	case isOpenLane && row.Key == rows.TailKey:
		row.Values = maps.Clone(row.Values)
		rows.Remove(row.Values, rows.IsClosed)
	case isMeta && (row.Key == rows.ForgottenKey || strings.HasPrefix(row.Key, upkeepPrefix)):
		row.Values = maps.Clone(row.Values)
		rows.Remove(row.Values, rows.DayMarker)
	}
}

// upkeepPrefix begins the keys of the rows in which package upkeep keeps its markers, in the column
// of rows.DayMarker.
const upkeepPrefix = "upkeep_"

// partitionWriter writes the differences of one partition in groups. The transactions form a chain:
// each changes the guard under the ETag of the one before.
type partitionWriter struct {
	*comparison
	partition string
	guard     storage.ETag // "" = not read yet
	ops       []storage.Op
	size      int
}

func (w *partitionWriter) add(ctx context.Context, op storage.Op) error {
	size := rows.EstimateSize(op.Values)
	if len(w.ops) == storage.MaxOps-1 || len(w.ops) > 0 && w.size+size > rows.MaxGroupBytes {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}

	w.ops, w.size = append(w.ops, op), w.size+size

	return nil
}

func (w *partitionWriter) flush(ctx context.Context) error {
	if len(w.ops) == 0 {
		return nil
	}

	if w.guard == "" {
		if err := w.readGuard(ctx); err != nil {
			return err
		}
	}

	ops := append([]storage.Op{{Kind: storage.Merge, Key: guardKey, IfMatch: w.guard, Values: w.guardValues()}},
		w.ops...)
	etags, err := w.To.Table.Transact(ctx, w.partition, ops)
	if err != nil {
		return err
	}

	w.guard, w.ops, w.size = etags[0], nil, 0

	return nil
}

func (w *partitionWriter) guardValues() map[string]any { return map[string]any{guardColumn: true} }

// readGuard reads the guard, and makes it if it is missing.
func (w *partitionWriter) readGuard(ctx context.Context) error {
	return w.retry(ctx, func() error {
		row, err := w.To.Table.Get(ctx, w.partition, guardKey)
		if err == nil {
			w.guard = row.ETag
			return nil
		}

		if !storage.Is(err, storage.NotFound) {
			return err
		}

		etags, err := w.To.Table.Transact(ctx, w.partition,
			[]storage.Op{{Kind: storage.Insert, Key: guardKey, Values: w.guardValues()}})
		if err != nil {
			return err
		}

		w.guard = etags[0]

		return nil
	})
}

// removeGuards removes the guards of all partitions of the target.
func (m Mover) removeGuards(ctx context.Context) error {
	names, err := m.listPartitions(ctx, m.To)
	if err != nil {
		return err
	}

	for _, name := range names {
		err := m.retry(ctx, func() error {
			_, err := m.To.Table.Get(ctx, name, guardKey)
			if err == nil {
				_, err = m.To.Table.Transact(ctx, name,
					[]storage.Op{{Kind: storage.Delete, Key: guardKey}})
			}

			if storage.Is(err, storage.NotFound) {
				return nil
			}

			return err
		})
		if err != nil {
			return fmt.Errorf("partition %s: %w", name, err)
		}
	}

	return nil
}

var errUnknownType = errors.New("a value of an unknown type")

// encodeRow returns the partition, key and values of a row as bytes. Rows with the same bytes are
// the same.
func encodeRow(partition string, row storage.Row) []byte {
	out := appendText(appendText(nil, partition), row.Key)
	for _, name := range slices.Sorted(maps.Keys(row.Values)) {
		if row.Values[name] != nil {
			out = appendValue(appendText(out, name), row.Values[name])
		}
	}

	return out
}

func appendText[T string | []byte](out []byte, text T) []byte {
	return append(binary.AppendUvarint(out, uint64(len(text))), text...)
}

func appendValue(out []byte, value any) []byte {
	switch v := value.(type) {
	case string:
		return appendText(append(out, 's'), v)
	case []byte:
		return appendText(append(out, 'x'), v)
	case int64:
		return binary.AppendVarint(append(out, 'i'), v)
	case float64:
		return binary.BigEndian.AppendUint64(append(out, 'f'), math.Float64bits(v))
	case bool:
		if v {
			return append(out, 't')
		}
		return append(out, 'n')

	case time.Time:
		return binary.AppendVarint(binary.AppendVarint(append(out, 'd'), v.Unix()),
			int64(v.Nanosecond()/100))
	}

	panic(errUnknownType) // storage.Row has no other values
}
