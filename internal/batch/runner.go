package batch

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/contract"
	"weir/internal/filing"
	"weir/internal/job"
	"weir/internal/lane"
	"weir/internal/retry"
	"weir/internal/storage"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Blobs stores documents, problems and message ids.
type Blobs interface {
	storage.Blobs
	List(ctx context.Context, prefix, marker string) (storage.BlobPage, error)
}

// Quotas counts messages against the daily quotas of upstreams; see upstream.Set.
type Quotas interface {
	// AdmitBatch counts parts of a batch against the daily quota of the upstream. After an error,
	// for example Limited, none of the parts is counted.
	AdmitBatch(ctx context.Context, upstream string, parts int) error
}

// Log appends messages to lanes; see lane.Appender.
type Log interface {
	AppendInOrder(ctx context.Context, drafts []lane.Draft) ([]lane.Receipt, []error)
}

// Config configures a Runner. All fields are required, except Quotas and FinishFile.
type Config struct {
	Store     *lane.Store // stores the messages
	Blobs     Blobs
	Leases    storage.Leases
	Lease     time.Duration // length of a batch's lease: 15 to 60 s
	Contracts *contract.Set // splits documents
	MaxBody   int64         // largest size of a part, in bytes
	Filer     *filing.Filer // checks the parts
	Log       Log
	Quotas    Quotas          // nil if the settings have no upstreams
	Wake      func(lane int)  // wakes this process's worker of a lane; returns at once
	Refused   func(err error) // is called for each part that the check finds invalid
	// FinishFile, if set, is called when a batch with a Spec.File is final; file is the Spec.File.
	// b includes the problems of the batch's parts. After an error or a crash the call is repeated.
	FinishFile func(ctx context.Context, b wire.Batch, file string) error
	Now        func() time.Time
	Logger     *slog.Logger
}

// Runner accepts batches and turns their parts into messages. Several Runners can share one
// storage: each batch is in work at only one Runner at a time. A Runner is safe for concurrent use.
// The caller must Close each Runner.
type Runner struct {
	Config
	store  store
	jobs   *job.Host
	shifts *shifts
	// appends limits the parts of all open batches that are appended at the same time to
	// appendsAtOnce.
	appends *semaphore.Weighted

	mu sync.Mutex
	// admitted has, by batch id, the number of parts that this process has counted against a daily
	// quota. If the save after the count fails, the batch is checked again. Because of admitted,
	// the same parts are not counted twice.
	admitted map[string]int
}

// New returns a Runner.
func New(cfg Config) *Runner {
	return &Runner{Config: cfg, store: store{cfg.Store.Table}, admitted: map[string]int{},
		shifts: newShifts(cfg.Now), appends: semaphore.NewWeighted(appendsAtOnce),
		jobs: job.NewHost(job.Config{Kind: "batch", Leases: cfg.Leases, Lease: cfg.Lease,
			Now: cfg.Now, Log: cfg.Logger})}
}

// createPauses is the retry policy for storing the rows of a batch.
var createPauses = retry.Policy{First: 200 * time.Millisecond, Max: time.Second, Tries: 5,
	IsTransient: func(err error) bool { return weir.KindOf(apiError(err)) == weir.Unavailable }}

// Accept stores a batch, and starts the work on the batch. If an earlier batch has the same
// idempotency key, Accept does not store the new batch. It returns the earlier batch if both
// batches have the same document, mode and split. Otherwise it returns an Invalid error. After an
// Unavailable error the batch may be stored or not. If body returns an error, Accept removes the
// stored chunks of the document and returns that error.
func (r *Runner) Accept(ctx context.Context, s Spec, body io.Reader) (wire.Batch, error) {
	one, err := r.prepareRow(s)
	if err != nil {
		return wire.Batch{}, err
	}

	body, err = checkStart(r.Contracts, one.batch.Format, s.ContentType, body)
	if err != nil {
		return wire.Batch{}, err
	}

	if err := r.checkQueue(ctx, &one); err != nil {
		return wire.Batch{}, apiError(err)
	}

	id, counted := one.batch.ID, &markCounter{Reader: body}
	one.batch.Bytes, one.progress.Digest, err = storeDocument(ctx, r.Blobs, id, counted)
	switch {
	case err != nil:
	case one.batch.Bytes == 0:
		err = malformedError("the body is empty")
	case one.batch.Format != wire.BatchZip:
		err = checkMarks(&one.batch, counted.marks)
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
		return wire.Batch{}, apiError(err) // the chunks stay, because the rows may have been stored
	}

	if known != nil {
		r.discardDocument(ctx, id, one.batch.Bytes)
		return repeatOf(known, &one)
	}

	r.jobs.Start(r.newJob(id, s.Upstream))

	return one.batch, nil
}

// prepareRow returns the row of a new batch, without the size and the digest of its document.
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
	b := wire.Batch{ID: job.NewID(now, randomBytes), State: wire.BatchChecking, Mode: s.Mode,
		Format: format, Split: split, Upstream: s.Upstream, AcceptedAt: now, UpdatedAt: now}

	return row{batch: b, progress: progress{ContentType: contentType,
		KeyRow: keyRowOf(s.Upstream, s.IdempotencyKey), File: s.File, Next: 1}}, nil
}

// repeatOf returns the result of Accept if an earlier batch has the idempotency key of the posted
// batch. The argument known is the earlier batch.
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

// discardTimeout limits the time for removing the chunks of a batch that was not accepted.
// RemoveExpired removes chunks that remain.
const discardTimeout = 10 * time.Second

func (r *Runner) discardDocument(ctx context.Context, id string, size int64) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	if err := removeDocument(limited, r.Blobs, id, size); err != nil {
		r.Logger.Warn("batch: chunks of a refused document not removed", "err", err)
	}
}

// maxListed is the largest number of batches that List returns.
const maxListed = 100

// List returns the newest batches, at most 100, without their problems and stages. The newest batch
// comes first.
func (r *Runner) List(ctx context.Context) ([]wire.Batch, error) {
	batches, err := r.store.listBatches(ctx, maxListed)
	return batches, apiError(err)
}

// ResumeOrphans starts the work on all unfinished batches, and does not wait for the end of the
// work. This process works on the batches in shifts; see the type shifts. If another process has a
// batch's lease, the batch stays with that process.
func (r *Runner) ResumeOrphans(ctx context.Context) error {
	unfinished, err := r.store.listWork(ctx)
	if err != nil {
		return err
	}

	jobs, isUnfinished := make([]job.Job, 0, len(unfinished)), map[string]bool{}
	for _, one := range slices.Backward(unfinished) { // begin with the oldest batch
		jobs = append(jobs, r.newJob(one.id, one.upstream))
		isUnfinished[one.id] = true
	}

	r.mu.Lock()
	maps.DeleteFunc(r.admitted, func(id string, _ int) bool { return !isUnfinished[id] })
	r.mu.Unlock()
	r.jobs.Resume(jobs)

	return nil
}

// newJob returns the work of this process on a batch.
func (r *Runner) newJob(id, upstream string) job.Job {
	var t *shift
	return job.Job{ID: id,
		Enter: func(ctx context.Context) (leave func(), err error) {
			if t, err = r.shifts.enter(ctx, upstream); err != nil {
				return nil, err
			}
			return t.leave, nil
		},
		Run: func(ctx context.Context, failures int) (hasProgressed bool, err error) {
			return r.processBatch(ctx, id, t, failures)
		}}
}

// Close stops the work of this Runner. It returns nil when the work has stopped, or an error if ctx
// ends first. ResumeOrphans of another process continues the work.
func (r *Runner) Close(ctx context.Context) error { return r.jobs.Close(ctx) }
