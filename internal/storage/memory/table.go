package memory

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/limits"
)

const (
	opTransact = "table transact"
	pageRows   = 1000
)

// Table implements storage.Table.
type Table struct {
	now        func() time.Time
	mu         sync.Mutex
	partitions map[string]*partition
	version    int64
}

type partition struct {
	keys keyList
	rows map[string]storage.Row
}

var _ storage.Table = (*Table)(nil)

// Partitions returns the names of the partitions that have rows, in their order.
func (t *Table) Partitions() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for name, p := range t.partitions {
		if len(p.rows) > 0 {
			names = append(names, name)
		}
	}

	slices.Sort(names)

	return names
}

// Get implements storage.Table.
func (t *Table) Get(ctx context.Context, partition, key string) (storage.Row, error) {
	if err := ctx.Err(); err != nil {
		return storage.Row{}, newError("table get", storage.Unavailable, err)
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	if p := t.partitions[partition]; p != nil {
		if row, ok := p.rows[key]; ok {
			return copyRow(row, nil), nil
		}
	}

	return storage.Row{}, newError("table get", storage.NotFound, nil)
}

// Range implements storage.Table.
func (t *Table) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	if err := ctx.Err(); err != nil {
		return storage.Page{}, newError("table range", storage.Unavailable, err)
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.partitions[q.Partition]
	if p == nil {
		return storage.Page{}, nil
	}

	limit := q.Limit
	if limit <= 0 || limit > pageRows {
		limit = pageRows
	}

	from := q.From
	if q.After != "" && q.After >= from {
		from = q.After + "\x00" // the smallest key greater than q.After
	}

	var page storage.Page
	at, _ := p.keys.findPos(from)
	for {
		key, ok := p.keys.keyAt(at)
		if !ok || (q.To != "" && key >= q.To) {
			return page, nil
		}

		if len(page.Rows) == limit {
			page.More = true
			return page, nil
		}

		page.Rows = append(page.Rows, copyRow(p.rows[key], q.Columns))
		at = p.keys.nextPos(at)
	}
}

// Transact implements storage.Table.
func (t *Table) Transact(ctx context.Context, name string,
	ops []storage.Op) ([]storage.ETag, error) {
	if err := ctx.Err(); err != nil {
		return nil, newError(opTransact, storage.Unavailable, err)
	}

	if err := limits.CheckTransaction(name, ops); err != nil {
		return nil, err
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.partitions[name]
	if p == nil {
		p = &partition{rows: map[string]storage.Row{}}
		t.partitions[name] = p
	}

	for i, op := range ops {
		if kind := p.refusalOf(op); kind != storage.Other {
			return nil, &storage.Error{Op: opTransact, Kind: kind, Index: i}
		}
	}

	etags := make([]storage.ETag, len(ops))
	for i, op := range ops {
		etags[i] = t.applyOp(p, name, op)
	}

	return etags, nil
}

// refusalOf returns the kind of the error with which storage refuses op. If storage accepts op, the
// kind is Other.
func (p *partition) refusalOf(op storage.Op) storage.Kind {
	row, exists := p.rows[op.Key]
	switch {
	case op.Kind == storage.Upsert:
		return storage.Other
	case op.Kind == storage.Insert && exists:
		return storage.Conflict
	case op.Kind == storage.Insert:
		return storage.Other
	case !exists:
		return storage.NotFound
	case op.IfMatch != "" && op.IfMatch != storage.AnyETag && op.IfMatch != row.ETag:
		return storage.Precondition
	}

	return storage.Other
}

func (t *Table) applyOp(p *partition, name string, op storage.Op) storage.ETag {
	if op.Kind == storage.Delete {
		p.keys.removeKey(op.Key)
		delete(p.rows, op.Key)
		return ""
	}

	p.keys.insertKey(op.Key)
	row := storage.Row{Partition: name, Key: op.Key, Values: map[string]any{}}
	if op.Kind == storage.Merge {
		maps.Copy(row.Values, p.rows[op.Key].Values)
	}

	for column, value := range op.Values {
		if value != nil {
			row.Values[column] = copyValue(value)
		}
	}

	if op.KeepsTime {
		row.WrittenAt, _ = copyValue(t.now()).(time.Time)
	}

	t.version++
	row.ETag = storage.ETag(`W/"` + strconv.FormatInt(t.version, 10) + `"`)
	p.rows[op.Key] = row

	return row.ETag
}

// copyRow copies a row, with only the given columns; nil = all columns.
func copyRow(row storage.Row, columns []string) storage.Row {
	out := row
	out.Values = make(map[string]any, len(row.Values))
	for column, value := range row.Values {
		if columns == nil || slices.Contains(columns, column) {
			if b, ok := value.([]byte); ok {
				value = bytes.Clone(b)
			}
			out.Values[column] = value
		}
	}

	return out
}

// copyValue copies a value. It converts times as Azure does: to UTC, truncated to 100 ns.
func copyValue(value any) any {
	switch v := value.(type) {
	case []byte:
		return append([]byte{}, v...)
	case time.Time:
		return v.UTC().Truncate(100 * time.Nanosecond)
	}
	return value
}

func newError(op string, kind storage.Kind, err error) error {
	return &storage.Error{Op: op, Kind: kind, Index: -1, Err: err}
}
