package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"weir/internal/storage"
)

// Limits of a row, by Azure's documentation ("Understanding the Table service data model").
const (
	maxProperty = 64 << 10
	maxRow      = 1 << 20
	maxKey      = 1 << 10
	pageRows    = 1000
)

// Table is a storage.Table.
type Table struct {
	mu         sync.Mutex
	partitions map[string]*partition
	version    int64
}

// partition keeps its rows sorted by key, so that appending at the end is cheap.
type partition struct {
	keys []string
	rows map[string]storage.Row
}

var _ storage.Table = (*Table)(nil)

// Get implements storage.Table.
func (t *Table) Get(ctx context.Context, partition, key string) (storage.Row, error) {
	if err := ctx.Err(); err != nil {
		return storage.Row{}, fail("table get", storage.Unavailable, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.partitions[partition]; p != nil {
		if row, ok := p.rows[key]; ok {
			return clone(row, nil), nil
		}
	}
	return storage.Row{}, fail("table get", storage.NotFound, nil)
}

// Range implements storage.Table.
func (t *Table) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	if err := ctx.Err(); err != nil {
		return storage.Page{}, fail("table range", storage.Unavailable, err)
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
	i, _ := slices.BinarySearch(p.keys, q.From)
	if q.After >= q.From && q.After != "" {
		i, _ = slices.BinarySearch(p.keys, q.After+"\x00")
	}
	var page storage.Page
	for ; i < len(p.keys) && (q.To == "" || p.keys[i] < q.To); i++ {
		if len(page.Rows) == limit {
			page.More = true
			break
		}
		page.Rows = append(page.Rows, clone(p.rows[p.keys[i]], q.Columns))
	}
	return page, nil
}

// Transact implements storage.Table.
func (t *Table) Transact(ctx context.Context, name string, ops []storage.Op) ([]storage.ETag, error) {
	if err := ctx.Err(); err != nil {
		return nil, fail("table transact", storage.Unavailable, err)
	}
	if err := check(name, ops); err != nil {
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
		if kind := p.refuses(op); kind != storage.Other {
			return nil, &storage.Error{Op: "table transact", Kind: kind, Index: i}
		}
	}
	etags := make([]storage.ETag, len(ops))
	for i, op := range ops {
		etags[i] = t.apply(p, name, op)
	}
	return etags, nil
}

// refuses says why an operation cannot be applied; Other means that it can.
func (p *partition) refuses(op storage.Op) storage.Kind {
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

func (t *Table) apply(p *partition, name string, op storage.Op) storage.ETag {
	i, found := slices.BinarySearch(p.keys, op.Key)
	if op.Kind == storage.Delete {
		p.keys = slices.Delete(p.keys, i, i+1)
		delete(p.rows, op.Key)
		return ""
	}
	if !found {
		p.keys = slices.Insert(p.keys, i, op.Key)
	}
	row := storage.Row{Partition: name, Key: op.Key, Values: map[string]any{}}
	if op.Kind == storage.Merge {
		maps.Copy(row.Values, p.rows[op.Key].Values)
	}
	for column, value := range op.Values {
		if value != nil {
			row.Values[column] = copyValue(value)
		}
	}
	t.version++
	row.ETag = storage.ETag(fmt.Sprintf(`W/"%d"`, t.version))
	p.rows[op.Key] = row
	return row.ETag
}

// check refuses what Azure refuses whatever is in the table.
func check(partition string, ops []storage.Op) error {
	if len(ops) == 0 || len(ops) > storage.MaxOps {
		return fail("table transact", storage.Other, fmt.Errorf("%d operations", len(ops)))
	}
	if !validKey(partition) {
		return fail("table transact", storage.Other, fmt.Errorf("partition key %q", partition))
	}
	seen, total := map[string]bool{}, 0
	for i, op := range ops {
		if !validKey(op.Key) || seen[op.Key] {
			return &storage.Error{Op: "table transact", Kind: storage.Other, Index: i, Err: fmt.Errorf("row key %q", op.Key)}
		}
		seen[op.Key] = true
		size, err := rowSize(op.Values)
		if err != nil {
			return &storage.Error{Op: "table transact", Kind: kindOfSize(err), Index: i, Err: err}
		}
		total += size
	}
	if total > storage.MaxPayloadBytes {
		return fail("table transact", storage.TooLarge, nil)
	}
	return nil
}

var errTooLarge = errors.New("over the limit")

func kindOfSize(err error) storage.Kind {
	if errors.Is(err, errTooLarge) {
		return storage.TooLarge
	}
	return storage.Other
}

// rowSize gives about what a row adds to a request.
func rowSize(values map[string]any) (int, error) {
	stored, sent := 0, 600
	for column, value := range values {
		size := 8
		switch v := value.(type) {
		case nil, int64, bool, float64, time.Time:
		case string:
			size = 2 * len(utf16.Encode([]rune(v)))
		case []byte:
			size = len(v)
			sent += len(v) / 3
		default:
			return 0, fmt.Errorf("value %s has type %T", column, value)
		}
		if size > maxProperty {
			return 0, fmt.Errorf("value %s: %w", column, errTooLarge)
		}
		stored += size + 2*len(column)
		sent += size + 2*len(column)
	}
	if stored > maxRow {
		return 0, fmt.Errorf("row: %w", errTooLarge)
	}
	return sent, nil
}

func validKey(key string) bool {
	return key != "" && len(key) <= maxKey && !strings.ContainsFunc(key, func(r rune) bool {
		return strings.ContainsRune(`/\#?`, r) || r < 0x20 || (r >= 0x7f && r < 0xa0)
	})
}

func clone(row storage.Row, columns []string) storage.Row {
	out := row
	out.Values = make(map[string]any, len(row.Values))
	for column, value := range row.Values {
		if columns == nil || slices.Contains(columns, column) {
			out.Values[column] = copyValue(value)
		}
	}
	return out
}

// copyValue keeps what Azure keeps: bytes of their own, times in UTC to 100 ns.
func copyValue(value any) any {
	switch v := value.(type) {
	case []byte:
		return slices.Clone(v)
	case time.Time:
		return v.UTC().Truncate(100 * time.Nanosecond)
	}
	return value
}

func fail(op string, kind storage.Kind, err error) error {
	return &storage.Error{Op: op, Kind: kind, Index: -1, Err: err}
}
