// Package timelimit cuts off storage calls that hang. Without a limit, a call without an answer
// would stop a lane until the transport gives up. The holder would still renew the lane's lease, so
// no other instance could take the lane over.
//
// If a write is cut off after it was sent, its error has the kind storage.Ambiguous. The caller
// then sends the write again, or reads whether storage has done the write.
package timelimit

import (
	"context"
	"errors"
	"io"
	"time"

	"weir/internal/storage"
)

// A hung call delays its lane by the call's limit, and then by a pause of at most two seconds. The
// sum must be less than ten seconds.
const (
	// callLimit bounds a call with a small answer. Storage usually answers such a call within
	// milliseconds.
	callLimit = 4 * time.Second
	// queryLimit bounds the wait for each answer to a query or a listing. Storage can search for
	// five seconds before it answers.
	queryLimit = 6 * time.Second
	// silenceLimit is the longest time in which no byte of a blob or file moves. A limit on the
	// whole call would fail each large body on a slow connection.
	silenceLimit = 7 * time.Second
)

// ErrHung is the cause (see context.Cause) with which this package cancels the context of a hung
// call.
var ErrHung = errors.New("storage did not answer in time")

type movedKey struct{}

// Moved restarts the limit of the call whose context is ctx. Moved is called when the call makes
// progress: bytes of a blob or file moved, or storage answered a query. Moved has no effect if the
// limit bounds the whole call.
func Moved(ctx context.Context) {
	if prolong, ok := ctx.Value(movedKey{}).(func()); ok {
		prolong()
	}
}

// withSilenceLimit cancels the returned context when the time limit passes without a call of Moved.
func withSilenceLimit(ctx context.Context, limit time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(ErrHung) })
	prolong := func() { timer.Reset(limit) }
	return context.WithValue(ctx, movedKey{}, prolong), func() { timer.Stop(); cancel(nil) }
}

func withCallLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, ErrHung)
}

// ForQuery returns a context with the time limit of one query. The caller must call the returned
// function.
func ForQuery(ctx context.Context) (context.Context, func()) {
	return withSilenceLimit(ctx, queryLimit)
}

// Table limits the time of each call of a table.
func Table(inner storage.Table) storage.Table { return table{inner} }

type table struct{ inner storage.Table }

func (t table) Get(ctx context.Context, partition, key string) (storage.Row, error) {
	ctx, cancel := withCallLimit(ctx, callLimit)
	defer cancel()
	return t.inner.Get(ctx, partition, key)
}

func (t table) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	ctx, cancel := withSilenceLimit(ctx, queryLimit)
	defer cancel()
	return t.inner.Range(ctx, q)
}

func (t table) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	ctx, cancel := withCallLimit(ctx, callLimit)
	defer cancel()
	return t.inner.Transact(ctx, partition, ops)
}

// QueuePort is a queue with its length.
type QueuePort interface {
	storage.Queue
	storage.QueueLength
}

// Queue limits the time of each call of a queue.
func Queue(inner QueuePort) QueuePort { return queue{inner} }

type queue struct{ inner QueuePort }

func (q queue) Put(ctx context.Context, text string, delay time.Duration) error {
	ctx, cancel := withCallLimit(ctx, callLimit)
	defer cancel()
	return q.inner.Put(ctx, text, delay)
}

func (q queue) Get(ctx context.Context, max int,
	hide time.Duration) ([]storage.QueueMessage, error) {
	ctx, cancel := withCallLimit(ctx, callLimit)
	defer cancel()
	return q.inner.Get(ctx, max, hide)
}

func (q queue) Update(ctx context.Context, m storage.QueueMessage, text string,
	hide time.Duration) (string, error) {
	ctx, cancel := withCallLimit(ctx, callLimit)
	defer cancel()
	return q.inner.Update(ctx, m, text, hide)
}

func (q queue) Delete(ctx context.Context, m storage.QueueMessage) error {
	ctx, cancel := withCallLimit(ctx, callLimit)
	defer cancel()
	return q.inner.Delete(ctx, m)
}

func (q queue) Length(ctx context.Context) (int64, error) {
	ctx, cancel := withCallLimit(ctx, callLimit)
	defer cancel()
	return q.inner.Length(ctx)
}

// BlobPort has all calls for blobs.
type BlobPort interface {
	storage.Blobs
	storage.BlobMarks
}

// Blobs limits the time of each call for blobs. A transfer is cut off only if no byte moves for
// silenceLimit.
func Blobs(inner BlobPort) BlobPort { return blobs{inner} }

type blobs struct{ inner BlobPort }

func (b blobs) Put(ctx context.Context, name string, data []byte) error {
	ctx, cancel := withSilenceLimit(ctx, silenceLimit)
	defer cancel()
	return b.inner.Put(ctx, name, data)
}

func (b blobs) Get(ctx context.Context, name string) ([]byte, error) {
	ctx, cancel := withSilenceLimit(ctx, silenceLimit)
	defer cancel()
	return b.inner.Get(ctx, name)
}

func (b blobs) Delete(ctx context.Context, name string) error {
	ctx, cancel := withCallLimit(ctx, callLimit)
	defer cancel()
	return b.inner.Delete(ctx, name)
}

func (b blobs) Mark(ctx context.Context, name string) error {
	ctx, cancel := withCallLimit(ctx, callLimit)
	defer cancel()
	return b.inner.Mark(ctx, name)
}

func (b blobs) List(ctx context.Context, prefix, marker string) (storage.BlobPage, error) {
	ctx, cancel := withCallLimit(ctx, queryLimit)
	defer cancel()
	return b.inner.List(ctx, prefix, marker)
}

// Files limits the time of each call for files. A transfer is cut off only if no byte moves for
// silenceLimit.
func Files(inner storage.Files) storage.Files { return files{inner} }

type files struct{ inner storage.Files }

func (f files) List(ctx context.Context, prefix, marker string) (storage.FilePage, error) {
	ctx, cancel := withCallLimit(ctx, queryLimit)
	defer cancel()
	return f.inner.List(ctx, prefix, marker)
}

func (f files) Read(ctx context.Context, name string, version storage.ETag, offset,
	length int64) ([]byte, error) {
	ctx, cancel := withSilenceLimit(ctx, silenceLimit)
	defer cancel()
	return f.inner.Read(ctx, name, version, offset, length)
}

func (f files) Write(ctx context.Context, name, contentType string, metadata map[string]string,
	body io.Reader) error {
	ctx, cancel := withSilenceLimit(ctx, silenceLimit)
	defer cancel()
	return f.inner.Write(ctx, name, contentType, metadata, movingBody{body, ctx})
}

// movingBody restarts the limit after each read, because the body can come from storage, and a read
// from storage takes time.
type movingBody struct {
	io.Reader
	ctx context.Context
}

// Read implements io.Reader.
func (m movingBody) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	Moved(m.ctx)
	return n, err
}

func (f files) Delete(ctx context.Context, name string, version storage.ETag) error {
	ctx, cancel := withCallLimit(ctx, callLimit)
	defer cancel()
	return f.inner.Delete(ctx, name, version)
}

// Leases limits the time of each call of leases.
func Leases(inner storage.Leases) storage.Leases { return leases{inner} }

type leases struct{ inner storage.Leases }

func (l leases) Acquire(ctx context.Context, name, id string, length time.Duration) error {
	ctx, cancel := withCallLimit(ctx, callLimit)
	defer cancel()
	return l.inner.Acquire(ctx, name, id, length)
}

func (l leases) Renew(ctx context.Context, name, id string) error {
	ctx, cancel := withCallLimit(ctx, callLimit)
	defer cancel()
	return l.inner.Renew(ctx, name, id)
}

func (l leases) Release(ctx context.Context, name, id string) error {
	ctx, cancel := withCallLimit(ctx, callLimit)
	defer cancel()
	return l.inner.Release(ctx, name, id)
}
