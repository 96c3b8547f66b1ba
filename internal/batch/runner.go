package batch

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"weir/internal/clock"
	"weir/internal/contract"
	"weir/internal/filing"
	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/retry"
	"weir/internal/storage"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Blobs stores documents, problems and ids.
type Blobs interface {
	storage.Blobs
	List(ctx context.Context, prefix, marker string) (storage.BlobPage, error)
}

// Quotas counts the messages of upstreams; see upstream.Set.
type Quotas interface {
	// AdmitBatch counts parts of a batch against the daily quota of its upstream. If it returns an error, for example
	// Limited, it counts none of them.
	AdmitBatch(ctx context.Context, upstream string, parts int) error
}

// Config configures a Runner. All fields are required, except Quotas and FinishFile.
type Config struct {
	Store     *lane.Store // has the messages
	Blobs     Blobs
	Leases    storage.Leases
	Lease     time.Duration // 15 to 60 s
	Contracts *contract.Set // splits documents
	MaxBody   int64         // largest size of a part, in bytes
	Filer     *filing.Filer
	Quotas    Quotas          // nil = the settings have no upstreams
	Wake      func(lane int)  // wakes this process's worker of a lane; returns at once
	Refused   func(err error) // is called for each invalid part when it is checked
	// FinishFile, if set, is called when a batch with a Spec.File is final. b has the problems of its parts. After an
	// error or a crash FinishFile is called again.
	FinishFile func(ctx context.Context, b wire.Batch, file string) error
	Now        func() time.Time
	Logger     *slog.Logger
}

// Runner accepts batches and files their parts. Any number of runners may share storage: one runner at a time works on
// a batch. A Runner is safe for concurrent use. The caller must Close it.
type Runner struct {
	Config
	store  store
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	isClosed bool
	running  map[string]bool // ids of the batches with a goroutine of startWork
	hasTried map[string]bool // ids of the batches for which startWork has been called before
	// admitted has, by id of a batch, the number of parts that this process has counted against a daily quota. If the
	// following save fails, the batch is checked again. If its parts were then counted again, the quota could refuse
	// the batch because of its own first count.
	admitted map[string]int
	turn     chan struct{} // full while this process works on a batch, because it works on one at a time
	wg       sync.WaitGroup
}

// New returns a Runner.
func New(cfg Config) *Runner {
	ctx, cancel := context.WithCancel(context.Background())
	return &Runner{Config: cfg, store: store{cfg.Store.Table}, ctx: ctx, cancel: cancel, running: map[string]bool{},
		hasTried: map[string]bool{}, admitted: map[string]int{}, turn: make(chan struct{}, 1)}
}

// createPauses has the pauses between the tries to store the rows of a batch.
var createPauses = retry.Policy{First: 200 * time.Millisecond, Max: time.Second, Tries: 5,
	IsTransient: func(err error) bool { return weir.KindOf(apiError(err)) == weir.Unavailable }}

// Accept stores a batch, and begins to work on it. If the idempotency key already has a batch, Accept compares the
// document, the mode and the split of both. If they are the same, Accept returns the earlier batch. If one of them
// differs, Accept returns Invalid. After an Unavailable error the batch may have been accepted or not. If body returns
// an error, Accept removes the stored chunks and returns the error.
func (r *Runner) Accept(ctx context.Context, s Spec, body io.Reader) (wire.Batch, error) {
	one, err := r.prepareRow(s)
	if err != nil {
		return wire.Batch{}, err
	}
	id := one.batch.ID
	one.batch.Bytes, one.progress.Digest, err = storeDocument(ctx, r.Blobs, id, body)
	if err == nil && one.batch.Bytes == 0 {
		err = malformedError("the body is empty")
	}
	if err != nil {
		r.discardDocument(ctx, id, one.batch.Bytes)
		return wire.Batch{}, apiError(err)
	}
	var known *row
	err = createPauses.Do(ctx, func() (err error) {
		known, err = r.store.create(ctx, one)
		return err
	})
	if err != nil {
		return wire.Batch{}, apiError(err) // the chunks stay, because the rows may be stored
	}
	if known != nil {
		r.discardDocument(ctx, id, one.batch.Bytes)
		return repeatOf(known, &one)
	}
	r.startWork(id)
	return one.batch, nil
}

// prepareRow returns the row of a batch whose document is not read yet.
func (r *Runner) prepareRow(s Spec) (row, error) {
	format, err := formatOf(s.ContentType)
	if err != nil {
		return row{}, err
	}
	split := s.Split
	if len(split) == 0 && format == wire.BatchXML {
		if split = r.Contracts.SplitPaths(); len(split) == 0 {
			return row{}, &weir.Error{Kind: weir.Invalid, Op: "batch",
				Message: "split is missing: the path of the parts, because no contract has one"}
		}
	}
	if _, err := compilePaths(split); err != nil {
		return row{}, err
	}
	contentType := s.ContentType
	if contentType == "" {
		contentType = "application/xml"
	}
	now := r.Now().UTC().Truncate(time.Microsecond)
	b := wire.Batch{ID: newID(now), State: wire.BatchChecking, Mode: s.Mode, Format: format, Split: split,
		Upstream: s.Upstream, AcceptedAt: now, UpdatedAt: now}
	return row{batch: b, progress: progress{ContentType: contentType, KeyRow: keyRowOf(s.Upstream, s.IdempotencyKey),
		File: s.File, Next: 1}}, nil
}

// repeatOf returns the answer to a post whose idempotency key has a batch already.
func repeatOf(known, posted *row) (wire.Batch, error) {
	if known.progress.Digest != posted.progress.Digest || known.batch.Mode != posted.batch.Mode ||
		!slices.Equal(known.batch.Split, posted.batch.Split) {
		return wire.Batch{}, &weir.Error{Kind: weir.Invalid, Op: "batch",
			Message: "this Idempotency-Key was used for another document, or with another mode or split"}
	}
	b := known.batch
	b.Duplicate = true
	return b, nil
}

// discardTimeout limits the time for removing the chunks of a batch that was not accepted. RemoveExpired removes the
// chunks that are left.
const discardTimeout = 10 * time.Second

func (r *Runner) discardDocument(ctx context.Context, id string, size int64) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	if err := removeDocument(limited, r.Blobs, id, size); err != nil {
		r.Logger.Warn("batch: chunks of a refused document not removed", "err", err)
	}
}

// maxListed is the largest number of batches in a list.
const maxListed = 100

// List returns the newest batches, newest first, without problems and stages.
func (r *Runner) List(ctx context.Context) ([]wire.Batch, error) {
	batches, err := r.store.listBatches(ctx, maxListed)
	return batches, apiError(err)
}

// ResumeOrphans starts the work on all unfinished batches. This process works on them one after the other. It leaves a
// batch to the process that has the batch's lease. ResumeOrphans does not wait for the work.
func (r *Runner) ResumeOrphans(ctx context.Context) error {
	ids, err := r.store.listWork(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	maps.DeleteFunc(r.hasTried, func(id string, _ bool) bool { return !slices.Contains(ids, id) })
	maps.DeleteFunc(r.admitted, func(id string, _ int) bool { return !slices.Contains(ids, id) })
	r.mu.Unlock()
	for i := range ids { // begin with the oldest batch
		r.startWork(ids[len(ids)-1-i])
	}
	return nil
}

// startWork works on a batch in a goroutine, unless the Runner is closed or works on the batch already.
func (r *Runner) startWork(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed || r.running[id] {
		return
	}
	waitForLease := !r.hasTried[id]
	r.running[id], r.hasTried[id] = true, true
	r.wg.Go(func() {
		if err := r.workInTurn(id, waitForLease); err != nil && r.ctx.Err() == nil {
			r.Logger.Warn("batch: work interrupted", "err", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, id)
	})
}

// leaseRetryDelay is the pause before a busy lease is tried again.
const leaseRetryDelay = 2 * time.Second

// workInTurn waits until this process works on no other batch, and then works on the batch. If another process has the
// batch's lease and waitForLease is set, workInTurn tries again until the lease of a dead process would have run out.
// Then it leaves the batch to the next ResumeOrphans. While it waits, this process can work on other batches.
func (r *Runner) workInTurn(id string, waitForLease bool) error {
	for waitUntil := (time.Time{}); ; {
		isBusy, err := r.tryTurn(id)
		if !isBusy || !waitForLease {
			return err
		}
		now := r.Now()
		if waitUntil.IsZero() {
			waitUntil = now.Add(r.Lease + leaseRetryDelay)
		}
		if now.After(waitUntil) || !clock.Sleep(r.ctx, leaseRetryDelay) {
			return nil
		}
	}
}

// tryTurn works on a batch under its lease. It reports whether another process has the lease.
func (r *Runner) tryTurn(id string) (isBusy bool, err error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-r.ctx.Done():
		return false, nil
	}
	l, err := lease.Acquire(r.ctx, lease.Config{Leases: r.Leases, Length: r.Lease, Now: r.Now, Log: r.Logger},
		"batch-"+id)
	switch {
	case errors.Is(err, lease.ErrBusy):
		return true, nil
	case err != nil && r.ctx.Err() != nil:
		return false, nil
	case err != nil:
		return false, err
	}
	defer l.Release(r.ctx)
	return false, r.processBatch(l.Context(), id)
}

// Close stops the work of this Runner, and returns when it has stopped or ctx ends. The sweep of another process
// resumes the work; see ResumeOrphans.
func (r *Runner) Close(ctx context.Context) error {
	r.mu.Lock()
	r.isClosed = true
	r.mu.Unlock()
	r.cancel()
	done := make(chan struct{})
	go func() { r.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
