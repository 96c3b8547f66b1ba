// Package upkeep removes rows and blobs that have no further use: expired messages, bodies without
// a message, old entries of the audit log and the history, old batches and archived files, and
// unused blobs of leases.
//
// The sweep begins passes once a minute. In a pass the lanes are visited one after another, and
// each Job that is due runs once, within a limit of its own. A job that is not done goes on in the
// next pass, from a marker that is stored. So a job with much work does not keep other jobs from
// theirs, and reaches its end in later passes.
//
// Several processes can run the same job at the same time. Then they remove the same things, and
// the stored marker is that of one of them.
package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"weir/internal/panics"
	"weir/internal/storage"
)

// Config configures a Keeper. All fields are required, except JobsAt.
type Config struct {
	Retention LaneRetention
	Lanes     int
	Jobs      []Job
	Table     storage.Table // has the markers of the jobs
	JobsAt    time.Time     // before this time no job runs; zero = no limit
	Now       func() time.Time
	Logger    *slog.Logger
}

// Keeper runs the lanes' retention and the jobs, in passes in the background. The caller must Close
// it.
type Keeper struct {
	lanes, jobs passes

	cfg    Config
	states []*jobState // one for each job
}

// jobState is a job with its state in memory. Only the pass of the jobs uses it.
type jobState struct {
	Job
	lastAt, nextAt time.Time
}

// New returns a Keeper. It does nothing before BeginPass.
func New(cfg Config) *Keeper {
	k := &Keeper{cfg: cfg}
	visits := &laneVisits{retention: cfg.Retention, count: cfg.Lanes, now: cfg.Now, log: cfg.Logger}
	k.lanes = passes{worker: "retention: lanes", run: visits.runPass, log: cfg.Logger}
	k.jobs = passes{worker: "upkeep: jobs", run: k.runJobs, log: cfg.Logger}
	for _, job := range cfg.Jobs {
		k.states = append(k.states, &jobState{Job: job, nextAt: cfg.JobsAt})
	}

	return k
}

// BeginPass begins a pass of the lanes and a pass of the jobs, and returns at once. While a pass
// is under way, exactly one more follows, however often BeginPass is called.
func (k *Keeper) BeginPass() {
	k.lanes.begin()
	k.jobs.begin()
}

// Close ends the passes under way, and prevents further ones. If ctx ends before that, Close
// returns the error of ctx.
func (k *Keeper) Close(ctx context.Context) error {
	var closing sync.WaitGroup
	var lanesErr, jobsErr error
	closing.Go(func() { lanesErr = panics.Catch(func() error { return k.lanes.close(ctx) }) })
	closing.Go(func() { jobsErr = panics.Catch(func() error { return k.jobs.close(ctx) }) })
	closing.Wait()
	return errors.Join(lanesErr, jobsErr)
}

// runJobs runs each job that is due once. The job whose last run is the oldest comes first.
func (k *Keeper) runJobs(ctx context.Context) {
	due := slices.Clone(k.states)
	slices.SortStableFunc(due, func(a, b *jobState) int { return a.lastAt.Compare(b.lastAt) })

	for _, job := range due {
		if ctx.Err() == nil && !job.nextAt.After(k.cfg.Now()) {
			k.runJob(ctx, job)
		}
	}
}

// runJob calls a job's Run with the stored marker, unless another process has done the job lately.
// Then it stores the new marker.
func (k *Keeper) runJob(ctx context.Context, job *jobState) {
	job.lastAt = k.cfg.Now()
	stored, err := readPosition(ctx, k.cfg.Table, job.Name)
	if err != nil {
		k.putOff(ctx, job, err)
		return
	}

	if now := k.cfg.Now(); stored.nextAt.After(now) && !stored.isFarAhead(now, job.Every) {
		job.nextAt = stored.nextAt
		return
	}

	limited, cancel := context.WithTimeout(ctx, job.Limit)
	defer cancel()
	var step Step
	err = panics.Catch(func() (err error) {
		step, err = job.Run(limited, stored.marker)
		return err
	})

	var panicked *panics.Error
	if errors.As(err, &panicked) {
		step = Step{Marker: stored.marker}
	}

	next := position{marker: step.Marker, nextAt: k.nextAt(job, step)}
	job.nextAt = next.nextAt
	if err != nil && (limited.Err() == nil || panicked != nil) {
		k.putOff(ctx, job, err)
	}

	if next == stored {
		return
	}

	if err := writePosition(ctx, k.cfg.Table, job.Name, next); err != nil {
		k.putOff(ctx, job, err)
	}
}

// nextAt returns the time of a job's next call; zero = in the next pass.
func (k *Keeper) nextAt(job *jobState, step Step) time.Time {
	if !step.IsDone {
		return time.Time{}
	}
	if !step.NextAt.IsZero() {
		return step.NextAt.UTC().Truncate(time.Microsecond)
	}
	return k.cfg.Now().Add(job.Every).UTC().Truncate(time.Microsecond)
}

// putOff logs the failure of a job. If the job is not done, it puts the next call off.
func (k *Keeper) putOff(ctx context.Context, job *jobState, err error) {
	if ctx.Err() != nil {
		return
	}

	k.cfg.Logger.Warn("upkeep: job left for now", "subject", job.Name, "err", err)
	if soon := k.cfg.Now().Add(retryAfter); job.nextAt.Before(soon) {
		job.nextAt = soon
	}
}

// position is the stored state of a job.
type position struct {
	marker string
	nextAt time.Time // zero = the job is not done
}

// isFarAhead reports whether a process whose clock was fast has written the position.
func (p position) isFarAhead(now time.Time, every time.Duration) bool {
	return p.nextAt.After(now.Add(2*every + 2*day))
}

// The row of a job has the key keyPrefix and the job's name.
const (
	partition = "meta"
	keyPrefix = "upkeep_"
)

func readPosition(ctx context.Context, table storage.Table, name string) (position, error) {
	row, err := table.Get(ctx, partition, keyPrefix+name)
	if storage.Is(err, storage.NotFound) {
		return position{}, nil
	}
	if err != nil {
		return position{}, err
	}

	marker, _ := row.Values["Marker"].(string)
	nextAt, _ := row.Values["NextAt"].(time.Time)

	return position{marker: marker, nextAt: nextAt.UTC()}, nil
}

// writePosition stores the position without a condition: the job can go on from the position of any
// process.
func writePosition(ctx context.Context, table storage.Table, name string, p position) error {
	values := map[string]any{}
	if p.marker != "" {
		values["Marker"] = p.marker
	}

	if !p.nextAt.IsZero() {
		values["NextAt"] = p.nextAt
	}

	_, err := table.Transact(ctx, partition,
		[]storage.Op{{Kind: storage.Upsert, Key: keyPrefix + name, Values: values}})

	return err
}
