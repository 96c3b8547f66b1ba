package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"strconv"
	"time"

	bolt "go.etcd.io/bbolt"

	"weir/internal/storage"
	"weir/internal/storage/limits"
)

const (
	opTransact = "table transact"
	pageRows   = 1000
	// pageBytes ends a page early: a reader of large rows must not need the memory of a thousand.
	pageBytes = 4 << 20
)

// table implements storage.Table. Each partition is a bucket of the bucket tableBucket, whose
// sequence is the number of the last ETag.
type table struct{ store *Store }

var _ storage.Table = (*table)(nil)

// Get implements storage.Table.
func (t *table) Get(ctx context.Context, partition, key string) (row storage.Row, err error) {
	const op = "table get"
	err = t.store.read(ctx, op, func(tx *bolt.Tx) error {
		value := rowsOf(tx, partition).get(key)
		if value == nil {
			return newError(op, storage.NotFound, nil)
		}
		row, err = decodeRow(partition, key, value, nil)
		return err
	})
	if err != nil {
		return storage.Row{}, err
	}

	return row, nil
}

// Range implements storage.Table.
func (t *table) Range(ctx context.Context, q storage.Query) (page storage.Page, err error) {
	err = t.store.read(ctx, "table range", func(tx *bolt.Tx) error {
		page, err = readPage(rowsOf(tx, q.Partition), q)
		return err
	})
	if err != nil {
		return storage.Page{}, err
	}

	return page, nil
}

func readPage(p partition, q storage.Query) (page storage.Page, err error) {
	if p.rows == nil {
		return page, nil
	}

	limit, size := q.Limit, 0
	if limit <= 0 || limit > pageRows {
		limit = pageRows
	}

	cursor := p.rows.Cursor()
	for key, value := seekFirst(cursor, q); key != nil; key, value = cursor.Next() {
		switch {
		case q.To != "" && string(key) >= q.To:
			return page, nil
		case len(page.Rows) == limit || size >= pageBytes:
			page.More = true
			return page, nil
		}

		row, err := decodeRow(q.Partition, string(key), value, wantedColumns(q.Columns))
		if err != nil {
			return storage.Page{}, err
		}

		page.Rows = append(page.Rows, row)
		size += len(value)
	}

	return page, nil
}

// seekFirst moves to the first row of a page.
func seekFirst(c *bolt.Cursor, q storage.Query) (key, value []byte) {
	if q.After == "" || q.After < q.From {
		return c.Seek([]byte(q.From))
	}

	key, value = c.Seek([]byte(q.After))
	if bytes.Equal(key, []byte(q.After)) {
		return c.Next()
	}

	return key, value
}

// Transact implements storage.Table.
func (t *table) Transact(ctx context.Context, name string,
	ops []storage.Op) ([]storage.ETag, error) {
	if ctx.Err() != nil {
		return nil, endedError(ctx, opTransact)
	}

	if err := limits.CheckTransaction(name, ops); err != nil {
		return nil, err
	}

	w := &rowWriter{now: t.store.now, partition: name, ops: make([]rowOp, len(ops)),
		etags: make([]storage.ETag, len(ops))}
	weight := 0
	for i, op := range ops {
		w.ops[i] = prepareOp(op)
		weight += len(w.ops[i].value) + 2*len(op.Key) + 64
	}

	err := t.store.committer.do(ctx,
		&change{op: opTransact, weight: weight, check: w.check, write: w.write})
	if err != nil {
		return nil, err
	}

	return w.etags, nil
}

// partition is the bucket of a partition; rows is nil if the partition has no row.
type partition struct{ rows *bolt.Bucket }

func rowsOf(tx *bolt.Tx, name string) partition {
	if name == "" {
		return partition{}
	}

	return partition{tx.Bucket([]byte(tableBucket)).Bucket([]byte(name))}
}

func (p partition) get(key string) []byte {
	if p.rows == nil || key == "" {
		return nil
	}

	return p.rows.Get([]byte(key))
}

// rowOp is an operation, ready for the commit: no caller can change it any more.
type rowOp struct {
	kind    storage.OpKind
	key     string
	ifMatch storage.ETag
	value   []byte         // the whole encoded row, except for Merge and Delete
	merged  map[string]any // the values of a Merge
	// the row gets the time of the write
	keepsTime bool
}

func prepareOp(op storage.Op) rowOp {
	p := rowOp{kind: op.Kind, key: op.Key, ifMatch: op.IfMatch, keepsTime: op.KeepsTime}
	switch op.Kind {
	case storage.Merge:
		p.merged = copyValues(op.Values)
		p.value = make([]byte, 0, rowHeader)
	case storage.Delete:
	default:
		p.value = encodeValues(op.Values)
	}

	return p
}

// rowWriter is a transaction of the port.
type rowWriter struct {
	now       func() time.Time
	partition string
	ops       []rowOp
	etags     []storage.ETag
}

// check returns the error of the first operation whose condition does not hold.
func (w *rowWriter) check(tx *bolt.Tx) error {
	rows := rowsOf(tx, w.partition)
	for i, op := range w.ops {
		stored := rows.get(op.key)
		if kind := refusalOf(op, stored); kind != storage.Other {
			return &storage.Error{Op: opTransact, Kind: kind, Index: i}
		}
	}

	return nil
}

// refusalOf returns the kind of the error with which an operation is refused, or Other.
func refusalOf(op rowOp, stored []byte) storage.Kind {
	exists := stored != nil
	switch {
	case op.kind == storage.Upsert:
		return storage.Other
	case op.kind == storage.Insert && exists:
		return storage.Conflict
	case op.kind == storage.Insert:
		return storage.Other
	case !exists:
		return storage.NotFound
	case op.ifMatch != "" && op.ifMatch != storage.AnyETag && op.ifMatch != rowETag(stored):
		return storage.Precondition
	}

	return storage.Other
}

func (w *rowWriter) write(tx *bolt.Tx) error {
	all := tx.Bucket([]byte(tableBucket))
	rows, err := all.CreateBucketIfNotExists([]byte(w.partition))
	if err != nil {
		return err
	}

	rows.FillPercent = rowFill

	for i, op := range w.ops {
		if op.kind == storage.Delete {
			if err := rows.Delete([]byte(op.key)); err != nil {
				return err
			}
			w.etags[i] = ""
			continue
		}

		value, err := op.newValue(w.partition, rows)
		if err != nil {
			return err
		}

		if op.keepsTime {
			value = appendValue(appendText(value, timeName), w.now())
		}

		number, err := all.NextSequence()
		if err != nil {
			return err
		}

		sealRow(value, w.partition, op.key, number)
		if err := rows.Put([]byte(op.key), value); err != nil {
			return err
		}

		w.etags[i] = etagOf(number)
	}

	return nil
}

// rowFill is the share of a page that is filled when a full page is split. Most rows are appended,
// and later get some bytes longer.
const rowFill = 0.8

// newValue returns the encoded row after the operation, without its ETag.
func (op rowOp) newValue(partition string, rows *bolt.Bucket) ([]byte, error) {
	if op.kind != storage.Merge {
		return op.value, nil
	}

	stored, err := decodeRow(partition, op.key, rows.Get([]byte(op.key)), nil)
	if err != nil {
		return nil, err
	}

	for name, value := range op.merged {
		stored.Values[name] = value
	}

	return encodeValues(stored.Values), nil
}

func etagOf(number uint64) storage.ETag {
	return storage.ETag(`W/"` + strconv.FormatUint(number, 10) + `"`)
}

func rowETag(value []byte) storage.ETag {
	if len(value) < rowHeader {
		return ""
	}

	return etagOf(binary.BigEndian.Uint64(value[4:]))
}

var _ storage.Partitions = (*Store)(nil)

// Partitions implements storage.Partitions.
func (s *Store) Partitions(ctx context.Context, visit func(name string) error) error {
	var names []string
	err := s.read(ctx, "table partitions", func(tx *bolt.Tx) error {
		all := tx.Bucket([]byte(tableBucket))
		return all.ForEachBucket(func(name []byte) error {
			if key, _ := all.Bucket(name).Cursor().First(); key != nil {
				names = append(names, string(name))
			}
			return nil
		})
	})

	for _, name := range names {
		if err == nil {
			err = visit(name)
		}
	}

	return err
}

// read calls f with a snapshot of the store.
func (s *Store) read(ctx context.Context, op string, f func(*bolt.Tx) error) error {
	if ctx.Err() != nil {
		return endedError(ctx, op)
	}

	if err := s.committer.brokenBy(); err != nil {
		return newError(op, storage.Unavailable, err)
	}

	s.reading.RLock()
	defer s.reading.RUnlock()
	err := guardFaults(func() error { return s.db.View(f) })

	return readError(op, err)
}

// brokenBy returns the error that broke the store, or nil.
func (c *committer) brokenBy() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.broken
}
