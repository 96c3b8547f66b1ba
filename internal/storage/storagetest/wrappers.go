package storagetest

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"
	"time"

	"weir/internal/storage"
)

// Table returns inner with the faults of f.
func (f *Faults) Table(inner storage.Table) storage.Table { return &table{f, inner} }

// Queue returns inner with the faults of f. The result implements storage.QueueLength if inner
// does.
func (f *Faults) Queue(inner storage.Queue) storage.Queue {
	q := &queue{f, inner}
	if l, ok := inner.(storage.QueueLength); ok {
		return &lengthQueue{q, l}
	}
	return q
}

// Blobs returns inner with the faults of f.
func (f *Faults) Blobs(inner BlobPort) BlobPort { return &blobs{f, inner} }

// Leases returns inner with the faults of f.
func (f *Faults) Leases(inner storage.Leases) storage.Leases { return &leases{f, inner} }

// Files returns inner with the faults of f.
func (f *Faults) Files(inner storage.Files) storage.Files { return &files{f, inner} }

type table struct {
	f     *Faults
	inner storage.Table
}

func (t *table) Get(ctx context.Context, partition, key string) (row storage.Row, err error) {
	err = t.f.doRead(ctx, Call{Port: "table", Op: "Get", Partition: partition, Key: key},
		func() error {
			row, err = t.inner.Get(ctx, partition, key)
			return err
		})
	return row, err
}

func (t *table) Range(ctx context.Context, q storage.Query) (page storage.Page, err error) {
	err = t.f.doRead(ctx, Call{Port: "table", Op: "Range", Partition: q.Partition, Key: q.From},
		func() error {
			page, err = t.inner.Range(ctx, q)
			return err
		})
	return page, err
}

func (t *table) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	ops = cloneOps(ops)
	answer := make(chan []storage.ETag, 1)
	err := t.f.doWrite(ctx, Call{Port: "table", Op: "Transact", Partition: partition, Ops: ops},
		func(ctx context.Context) error {
			etags, err := t.inner.Transact(ctx, partition, ops)
			answer <- etags
			return err
		})
	if err != nil {
		return nil, err
	}

	return <-answer, nil
}

// cloneOps copies operations. If a fault delays a transaction, the caller can change its operations
// before the transaction is done. The transaction must still write the values that the caller gave
// at first.
func cloneOps(ops []storage.Op) []storage.Op {
	out := slices.Clone(ops)
	for i := range out {
		out[i].Values = maps.Clone(out[i].Values)
		for name, value := range out[i].Values {
			if b, ok := value.([]byte); ok {
				out[i].Values[name] = bytes.Clone(b)
			}
		}
	}

	return out
}

type queue struct {
	f     *Faults
	inner storage.Queue
}

func (q *queue) Put(ctx context.Context, text string, delay time.Duration) error {
	return q.f.doWrite(ctx, Call{Port: "queue", Op: "Put", Key: text},
		func(ctx context.Context) error {
			return q.inner.Put(ctx, text, delay)
		})
}

func (q *queue) Get(ctx context.Context, max int,
	hide time.Duration) ([]storage.QueueMessage, error) {
	taken := make(chan []storage.QueueMessage, 1)
	err := q.f.doWrite(ctx, Call{Port: "queue", Op: "Get"}, func(ctx context.Context) error {
		got, err := q.inner.Get(ctx, max, hide)
		taken <- got
		return err
	})
	if err != nil {
		return nil, err
	}

	return <-taken, nil
}

func (q *queue) Update(ctx context.Context, m storage.QueueMessage, text string,
	hide time.Duration) (string, error) {
	receipt := make(chan string, 1)
	err := q.f.doWrite(ctx, Call{Port: "queue", Op: "Update", Key: m.ID},
		func(ctx context.Context) error {
			r, err := q.inner.Update(ctx, m, text, hide)
			receipt <- r
			return err
		})
	if err != nil {
		return "", err
	}

	return <-receipt, nil
}

func (q *queue) Delete(ctx context.Context, m storage.QueueMessage) error {
	return q.f.doWrite(ctx, Call{Port: "queue", Op: "Delete", Key: m.ID},
		func(ctx context.Context) error {
			return q.inner.Delete(ctx, m)
		})
}

type lengthQueue struct {
	*queue
	length storage.QueueLength
}

func (q *lengthQueue) Length(ctx context.Context) (n int64, err error) {
	err = q.f.doRead(ctx, Call{Port: "queue", Op: "Length"}, func() error {
		n, err = q.length.Length(ctx)
		return err
	})
	return n, err
}

type blobs struct {
	f     *Faults
	inner BlobPort
}

func (b *blobs) Put(ctx context.Context, name string, data []byte) error {
	data = bytes.Clone(data)
	return b.f.doWrite(ctx, Call{Port: "blobs", Op: "Put", Key: name},
		func(ctx context.Context) error {
			return b.inner.Put(ctx, name, data)
		})
}

func (b *blobs) Get(ctx context.Context, name string) (data []byte, err error) {
	err = b.f.doRead(ctx, Call{Port: "blobs", Op: "Get", Key: name}, func() error {
		data, err = b.inner.Get(ctx, name)
		return err
	})
	return data, err
}

func (b *blobs) Delete(ctx context.Context, name string) error {
	return b.f.doWrite(ctx, Call{Port: "blobs", Op: "Delete", Key: name},
		func(ctx context.Context) error {
			return b.inner.Delete(ctx, name)
		})
}

func (b *blobs) Mark(ctx context.Context, name string) error {
	return b.f.doWrite(ctx, Call{Port: "blobs", Op: "Mark", Key: name},
		func(ctx context.Context) error {
			return b.inner.Mark(ctx, name)
		})
}

func (b *blobs) List(ctx context.Context, prefix, marker string) (page storage.BlobPage,
	err error) {
	err = b.f.doRead(ctx, Call{Port: "blobs", Op: "List", Key: prefix}, func() error {
		page, err = b.inner.List(ctx, prefix, marker)
		return err
	})
	return page, err
}

type leases struct {
	f     *Faults
	inner storage.Leases
}

func (l *leases) Acquire(ctx context.Context, name, id string, length time.Duration) error {
	return l.f.doWrite(ctx, Call{Port: "leases", Op: "Acquire", Key: name},
		func(ctx context.Context) error {
			return l.inner.Acquire(ctx, name, id, length)
		})
}

func (l *leases) Renew(ctx context.Context, name, id string) error {
	return l.f.doWrite(ctx, Call{Port: "leases", Op: "Renew", Key: name},
		func(ctx context.Context) error {
			return l.inner.Renew(ctx, name, id)
		})
}

func (l *leases) Release(ctx context.Context, name, id string) error {
	return l.f.doWrite(ctx, Call{Port: "leases", Op: "Release", Key: name},
		func(ctx context.Context) error {
			return l.inner.Release(ctx, name, id)
		})
}

type files struct {
	f     *Faults
	inner storage.Files
}

func (f *files) List(ctx context.Context, prefix, marker string) (page storage.FilePage,
	err error) {
	err = f.f.doRead(ctx, Call{Port: "files", Op: "List", Key: prefix}, func() error {
		page, err = f.inner.List(ctx, prefix, marker)
		return err
	})
	return page, err
}

func (f *files) Read(ctx context.Context, name string, version storage.ETag, offset,
	length int64) (data []byte, err error) {
	err = f.f.doRead(ctx, Call{Port: "files", Op: "Read", Key: name}, func() error {
		data, err = f.inner.Read(ctx, name, version, offset, length)
		return err
	})
	return data, err
}

func (f *files) Write(ctx context.Context, name, contentType string, metadata map[string]string,
	body io.Reader) error {
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}

	return f.f.doWrite(ctx, Call{Port: "files", Op: "Write", Key: name},
		func(ctx context.Context) error {
			return f.inner.Write(ctx, name, contentType, metadata, bytes.NewReader(data))
		})
}

func (f *files) Delete(ctx context.Context, name string, version storage.ETag) error {
	return f.f.doWrite(ctx, Call{Port: "files", Op: "Delete", Key: name},
		func(ctx context.Context) error {
			return f.inner.Delete(ctx, name, version)
		})
}
