package job

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"weir/internal/clock"
	"weir/internal/lease"
	"weir/internal/panics"
	"weir/internal/storage"
)

const (
	// MaxTries is the largest number of runs in a row that fail without progress.
	MaxTries = 5
	// minPause is the pause after the first failure; each further pause is twice as long.
	minPause = time.Second
	// busyPause is the pause before a busy lease is tried again.
	busyPause = 2 * time.Second
)

// Job is a job to run in this process.
type Job struct {
	ID string
	// Enter waits until this process has a place for the job; leave frees the place. nil = at once.
	Enter func(ctx context.Context) (leave func(), err error)
	// Run does the work until the job is over, and then returns nil. ctx ends with the job's lease.
	// The argument failures is the number of failed runs since the last progress. Run reports
	// whether it has stored any progress, even if it failed.
	Run func(ctx context.Context, failures int) (hasProgressed bool, err error)
}

// ErrAgain is the error of a Run that has left its place to other jobs. The job enters again at
// once.
var ErrAgain = errors.New("the job left its place to others")

// Leave returns an error by which Run leaves the job to the next sweep.
func Leave(cause error) error { return &leftError{cause} }

type leftError struct{ cause error }

func (e *leftError) Error() string { return e.cause.Error() }

func (e *leftError) Unwrap() error { return e.cause }

// Config configures a Host. All fields are required.
type Config struct {
	Kind   string // kind of the jobs, such as "batch"; the names of their leases begin with it
	Leases storage.Leases
	Lease  time.Duration // length of a lease: 15 to 60 s
	Now    func() time.Time
	Log    *slog.Logger
}

// Host runs the jobs of one kind in this process. It is safe for concurrent use. The caller must
// Close it.
type Host struct {
	Config
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	isClosed bool
	running  map[string]*activeJob // by the id of the job
	hasTried map[string]bool       // ids of the jobs that this process has started
	wg       sync.WaitGroup
}

// activeJob is a job that this process runs, or whose place or lease this process tries to get.
type activeJob struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the process has stopped running the job
}

// NewHost returns a Host without jobs.
func NewHost(cfg Config) *Host {
	ctx, cancel := context.WithCancel(context.Background())
	return &Host{Config: cfg, ctx: ctx, cancel: cancel, running: map[string]*activeJob{},
		hasTried: map[string]bool{}}
}

// Start runs a job in a goroutine, except if the Host is closed or runs the job already.
func (h *Host) Start(j Job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isClosed || h.running[j.ID] != nil {
		return
	}

	ctx, cancel := context.WithCancel(h.ctx)
	active := &activeJob{cancel, make(chan struct{})}
	isNew := !h.hasTried[j.ID]
	h.running[j.ID], h.hasTried[j.ID] = active, true
	h.wg.Go(func() {
		defer close(active.done)
		defer cancel()
		err := panics.Catch(func() error { return h.runUntilOver(ctx, j, isNew) })
		if err != nil && ctx.Err() == nil {
			h.Log.Warn("job: left to the next sweep", "subject", h.Kind, "err", err)
		}

		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.running, j.ID)
	})
}

// Resume starts the unfinished jobs, and forgets all others. Otherwise the memory of a process
// would grow with each job.
func (h *Host) Resume(unfinished []Job) {
	isUnfinished := map[string]bool{}
	for _, j := range unfinished {
		isUnfinished[j.ID] = true
		h.Start(j)
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.hasTried, func(id string, _ bool) bool {
		return !isUnfinished[id] && h.running[id] == nil
	})
}

// Stop stops a job that this process runs, and waits until it has stopped.
func (h *Host) Stop(id string) {
	h.mu.Lock()
	active := h.running[id]
	h.mu.Unlock()

	if active != nil {
		active.cancel()
		<-active.done
	}
}

// runUntilOver runs a job again and again, until it is over, is left to the next sweep, or ctx
// ends.
func (h *Host) runUntilOver(ctx context.Context, j Job, isNew bool) error {
	var busyUntil time.Time
	for failures := 0; ; {
		hasProgressed, err := h.tryRun(ctx, j, failures)
		if hasProgressed {
			failures = 0
		}

		var left *leftError
		pause := busyPause
		switch {
		case err == nil, ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrAgain):
			continue
		case errors.As(err, &left):
			return left.cause
		case errors.Is(err, lease.ErrBusy):
			if busyUntil.IsZero() {
				busyUntil = h.Now().Add(h.Lease + busyPause)
			}
			if !isNew || h.Now().After(busyUntil) {
				return nil
			}

		default:
			if failures++; failures == MaxTries {
				return err
			}
			pause = minPause << (failures - 1)
			h.Log.Warn("job: run failed, will retry", "subject", h.Kind, "delay_ms",
				pause.Milliseconds(), "err", err)
		}

		if !clock.Sleep(ctx, pause) {
			return nil
		}
	}
}

// tryRun runs a job once, in its place and under its lease. If another process has the lease,
// tryRun returns lease.ErrBusy.
func (h *Host) tryRun(ctx context.Context, j Job, failures int) (hasProgressed bool, err error) {
	if j.Enter != nil {
		leave, err := j.Enter(ctx)
		if err != nil {
			return false, err
		}
		defer leave()
	}

	cfg := lease.Config{Leases: h.Leases, Length: h.Lease, Now: h.Now, Log: h.Log}
	err = lease.Do(ctx, cfg, h.Kind+"-"+j.ID, func(ctx context.Context) (err error) {
		hasProgressed, err = j.Run(ctx, failures)
		return err
	})

	return hasProgressed, err
}

// Close stops all jobs, and returns when they have stopped. If ctx ends before, Close returns the
// cause of ctx. The jobs stay stored, and another process resumes them in its sweep.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.isClosed = true
	h.mu.Unlock()
	h.cancel()

	return clock.WaitFor(ctx, &h.wg)
}
