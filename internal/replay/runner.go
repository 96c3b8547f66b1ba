package replay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/overview/lists"
	"weir/internal/replay/jobrow"
	"weir/internal/retry"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Log reads dead messages and requests their replay. The stored lanes implement it; see LogOf.
type Log interface {
	ReadDead(ctx context.Context, lane int, behind int64, limit int) (rows []lists.DeadRow, more bool, err error)
	ReadStates(ctx context.Context, lane int, seqs []int64) ([]lists.MessageState, error)
	ReadMessage(ctx context.Context, lane int, seq int64) (*lane.Entry, error)
	// ReplayMany requests the replay of dead messages of a lane; see lane.Requests.
	ReplayMany(ctx context.Context, lane int, entries []*lane.Entry, force bool) (results []error, err error)
	// ReplayObstacle returns the reason for which a dead message is replayed only by force; "" = no reason. The
	// historyFence is Tail.HistoryFence of the message's lane.
	ReplayObstacle(ctx context.Context, e *lane.Entry, historyFence int64) (string, error)
}

// LogOf returns the log of a store's lanes.
func LogOf(s *lane.Store) Log { return storeLog{s, s.Requests(), lists.Reader{Store: s}} }

type storeLog struct {
	*lane.Store
	lane.Requests
	lists.Reader
}

// Config configures a Runner. All fields are required, except Interval and Finished.
type Config struct {
	Store    *lane.Store // has the rows of the jobs
	Log      Log
	Leases   storage.Leases
	Lease    time.Duration   // 15 to 60 s
	Wake     func(lane int)  // wakes this process's worker of a lane; returns at once
	Interval time.Duration   // shortest time between two attempts of one process; 0 = no limit
	Finished func(Job) error // called when a job is over, and again until it returns nil; nil = not called
	Now      func() time.Time
	Logger   *slog.Logger
}

// Runner runs bulk replays, and starts and cancels them for users. Any number of runners may share storage: one runner
// at a time runs a job. The caller must Close the Runner.
type Runner struct {
	Config
	jobs   jobStore
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	isClosed bool
	running  map[string]*activeJob // by id of the job
	hasTried map[string]bool       // ids of the jobs that this process has tried to run
	wg       sync.WaitGroup
}

// activeJob is a job that this process runs, or whose lease it tries to get.
type activeJob struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when this process has stopped running the job
}

// New returns a Runner. It runs no job before Start or ResumeOrphans.
func New(cfg Config) *Runner {
	if cfg.Finished == nil {
		cfg.Finished = func(Job) error { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Runner{Config: cfg, jobs: jobStore{cfg.Store}, ctx: ctx, cancel: cancel, running: map[string]*activeJob{},
		hasTried: map[string]bool{}}
}

// Start begins a job. The job continues in this process after Start has returned.
func (r *Runner) Start(ctx context.Context, s Spec) (Job, error) {
	if err := s.checkSpec(r.Store.Lanes); err != nil {
		return Job{}, err
	}
	j := newJob(s, r.Now())
	row, err := encodeJob(j, checkpoint{})
	if err != nil {
		return Job{}, err
	}
	if _, err := jobrow.Create(ctx, r.Store, row); err != nil {
		return Job{}, err
	}
	r.startJob(j.ID)
	return j, nil
}

// Get returns a job. It returns NotFound if no job has the id.
func (r *Runner) Get(ctx context.Context, id string) (Job, error) { return r.jobs.getJob(ctx, id) }

// List returns all running jobs, and the newest jobs that are over; the newest come first.
func (r *Runner) List(ctx context.Context) ([]Job, error) { return r.jobs.listJobs(ctx) }

// Cancel ends a job. If another process runs the job, that process finishes its present batch, and stops when it next
// saves its progress, before it requests another replay. Messages that were replayed stay replayed. If the job is done
// or stopped already, Cancel returns Conflict.
func (r *Runner) Cancel(ctx context.Context, id string) (Job, error) {
	j, err := r.jobs.getJob(ctx, id)
	if err != nil {
		return j, err
	}
	if j.State == Cancelled {
		return r.completeCancel(ctx, j)
	}
	r.stopJob(id)
	if j, err = r.jobs.getJob(ctx, id); err != nil { // again, for the progress that this process has saved
		return j, err
	}
	if j.State == Running {
		setFinal(&j, Cancelled, "", r.Now())
		j, err = r.jobs.finishJob(ctx, j, r.Finished)
	}
	if err == nil && j.State != Cancelled {
		err = &weir.Error{Kind: weir.Conflict, Op: "replays", Message: "the bulk replay is over: " + string(j.State)}
	}
	return j, apiError(err)
}

// completeCancel removes the row of lane 0 of a cancelled job, if an earlier Cancel failed before it removed that row.
// Until the row is gone, a process that runs the job goes on.
func (r *Runner) completeCancel(ctx context.Context, j Job) (Job, error) {
	_, err := jobrow.Read(ctx, r.Store, j.ID)
	if storage.Is(err, storage.NotFound) {
		return j, nil
	}
	if err == nil {
		j, err = r.jobs.finishJob(ctx, j, r.Finished)
	}
	return j, apiError(err)
}

// stopJob stops running a job in this process, and waits for its end.
func (r *Runner) stopJob(id string) {
	r.mu.Lock()
	c := r.running[id]
	r.mu.Unlock()
	if c != nil {
		c.cancel()
		<-c.done
	}
}

// ResumeOrphans starts all jobs in progress that no other process runs, and returns at once. The control rows must be
// those of lane 0.
func (r *Runner) ResumeOrphans(control lane.Control) {
	for _, row := range jobrow.InProgress(control) {
		r.startJob(row.ID)
	}
}

// startJob runs a job in a goroutine, unless the Runner is closed or runs the job already.
func (r *Runner) startJob(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed || r.running[id] != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.ctx)
	c := &activeJob{cancel, make(chan struct{})}
	waitForLease := !r.hasTried[id]
	r.running[id], r.hasTried[id] = c, true
	r.wg.Go(func() {
		defer close(c.done)
		defer cancel()
		if err := r.runUnderLease(ctx, id, waitForLease); err != nil && ctx.Err() == nil {
			r.Logger.Warn("replay: job interrupted", "err", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, id)
	})
}

// leaseRetryDelay is the pause before a busy lease is tried again.
const leaseRetryDelay = 2 * time.Second

// runUnderLease runs a job under its lease. If another process has the lease, runUnderLease leaves the job to the next
// ResumeOrphans. With waitForLease it first tries for the length of a lease, because the lease of a dead process ends
// in that time.
func (r *Runner) runUnderLease(ctx context.Context, id string, waitForLease bool) error {
	cfg := lease.Config{Leases: r.Leases, Length: r.Lease, Now: r.Now, Log: r.Logger}
	end := r.Now().Add(r.Lease + leaseRetryDelay)
	var l *lease.Lease
	err := retry.Policy{
		First: leaseRetryDelay,
		IsTransient: func(err error) bool {
			return errors.Is(err, lease.ErrBusy) && waitForLease && !r.Now().After(end)
		},
	}.Do(ctx, func() (err error) {
		l, err = lease.Acquire(ctx, cfg, "replay-"+id)
		return err
	})
	switch {
	case errors.Is(err, lease.ErrBusy), err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	defer l.Release(ctx)
	return r.runJob(l.Context(), id)
}

// Close stops the work of this process on its jobs, and returns when it has stopped or ctx ends. The jobs stay in the
// stored state running, so that the sweep of another process resumes them.
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
