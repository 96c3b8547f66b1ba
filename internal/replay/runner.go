package replay

import (
	"context"
	"log/slog"
	"time"

	"weir/internal/job"
	"weir/internal/lane"
	"weir/internal/lane/jobrow"
	"weir/internal/lane/lists"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Log reads dead messages and requests their replay. LogOf returns the Log of the stored lanes.
type Log interface {
	ReadDead(ctx context.Context, lane int, behind int64, limit int) (rows []lists.DeadRow,
		more bool, err error)
	ReadStates(ctx context.Context, lane int, seqs []int64) ([]lists.MessageState, error)
	ReadMessage(ctx context.Context, lane int, seq int64) (*lane.Entry, error)
	// ReplayMany requests the replay of dead messages of one lane; see lane.Requests.ReplayMany.
	ReplayMany(ctx context.Context, lane int, entries []*lane.Entry, force bool) (results []error,
		err error)
	// ReplayObstacle returns the reason to refuse a replay that is not forced; "" = no reason.
	ReplayObstacle(ctx context.Context, e *lane.Entry) (string, error)
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
	Store  *lane.Store // has the rows of the jobs
	Log    Log
	Leases storage.Leases
	Lease  time.Duration  // length of a job's lease, 15 to 60 s
	Wake   func(lane int) // enqueues a ticket for the lane, and wakes this process's drainer; must return at once
	// shortest time between two requests to the CMS, over all processes; 0 = no limit
	Interval time.Duration
	// called when a job is over; if Finished fails, it is called again later; nil = not called
	Finished func(Job) error
	Now      func() time.Time
	Logger   *slog.Logger
}

// Runner starts, runs and cancels bulk replays. It is safe for concurrent use. Several Runners can
// share storage: each job is run by only one of them at a time. The caller must Close the Runner.
type Runner struct {
	Config
	jobs jobStore
	host *job.Host
}

// New returns a Runner. The Runner runs no job before Start or ResumeOrphans is called.
func New(cfg Config) *Runner {
	if cfg.Finished == nil {
		cfg.Finished = func(Job) error { return nil }
	}
	return &Runner{Config: cfg, jobs: jobStore{cfg.Store},
		host: job.NewHost(job.Config{Kind: "replay",
			Leases: cfg.Leases, Lease: cfg.Lease, Now: cfg.Now, Log: cfg.Logger})}
}

// newTask returns the work of this process on a job.
func (r *Runner) newTask(id string) job.Job {
	return job.Job{ID: id, Run: func(ctx context.Context, _ int) (bool, error) {
		return false, r.runJob(ctx, id)
	}}
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

	r.host.Start(r.newTask(j.ID))

	return j, nil
}

// Get returns a job. If no job has the id, Get returns an error of kind NotFound.
func (r *Runner) Get(ctx context.Context, id string) (Job, error) { return r.jobs.getJob(ctx, id) }

// List returns all running jobs and the newest jobs that are over, with the newest first.
func (r *Runner) List(ctx context.Context) ([]Job, error) { return r.jobs.listJobs(ctx) }

// Cancel ends a job. If another process runs the job, that process can still request some replays.
// Replays that were requested are not taken back. If the job is done or stopped already, Cancel
// returns an error of kind Conflict.
func (r *Runner) Cancel(ctx context.Context, id string) (Job, error) {
	j, err := r.jobs.getJob(ctx, id)
	if err != nil {
		return j, err
	}
	if j.State == Cancelled {
		return r.completeCancel(ctx, j)
	}

	r.host.Stop(id)

	// read again: a job saves its progress when it stops
	if j, err = r.jobs.getJob(ctx, id); err != nil {
		return j, err
	}

	if j.State == Running {
		setFinal(&j, Cancelled, "", r.Now())
		j, err = r.jobs.finishJob(ctx, j, r.Finished)
	}

	if err == nil && j.State != Cancelled {
		err = &weir.Error{Kind: weir.Conflict, Op: "replays",
			Message: "the bulk replay is over: " + string(j.State)}
	}

	return j, apiError(err)
}

// completeCancel removes a cancelled job's row from lane 0, if an earlier Cancel failed to remove
// that row. If the row stayed, a process that runs the job would go on.
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

// ResumeOrphans takes over the jobs in progress that no process runs, and returns at once. The
// control rows must be those of lane 0.
func (r *Runner) ResumeOrphans(control lane.Control) {
	var unfinished []job.Job
	for _, row := range jobrow.InProgress(control) {
		unfinished = append(unfinished, r.newTask(row.ID))
	}
	r.host.Resume(unfinished)
}

// Close stops the jobs that this process runs, and waits until they have stopped. If ctx ends
// before that, Close returns the cause of ctx. The stored state of the jobs stays Running, so that
// another process resumes them in its sweep.
func (r *Runner) Close(ctx context.Context) error { return r.host.Close(ctx) }
