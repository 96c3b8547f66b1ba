package replay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Log is what is replayed: a *lane.Store, but for Replay.
type Log interface {
	Dead(ctx context.Context, lane int, behind int64, limit int) (rows []lane.DeadRow, more bool, err error)
	Fates(ctx context.Context, lane int, seqs []int64) ([]lane.Fate, error)
	ReadMessage(ctx context.Context, lane int, seq int64) (*lane.Entry, error)
	// Replay asks for a dead message to be delivered after all. Conflict: it is not dead, or
	// a later one of its key was delivered, and force does not say that this does not
	// matter. Asking for what was asked for already is harmless.
	Replay(ctx context.Context, id weir.ID, force bool) error
	// Late tells why a dead message is not replayed unless by force; "" = it is. watched is
	// that of its lane's tail.
	Late(ctx context.Context, e *lane.Entry, watched int64) (string, error)
}

// Config is what a Runner works with. All fields are needed but Finished.
type Config struct {
	Store    *lane.Store // keeps the jobs
	Log      Log
	Leases   storage.Leases
	Lease    time.Duration   // 15 to 60 s
	Call     func(lane int)  // has a lane looked at; returns at once
	Interval time.Duration   // between two attempts of one process; 0 = none
	Finished func(Job) error // is told of each job that is over, until it has taken that in; nil = nobody
	Now      func() time.Time
	Logger   *slog.Logger
}

// Runner carries bulk replays out, and begins and ends them for users. Any number of
// runners may share storage: one at a time carries a job. Close it.
type Runner struct {
	Config
	books  books
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running map[string]*carrier
	heard   map[string]bool // jobs this process has tried to carry
	wg      sync.WaitGroup
}

// carrier is one job that this process carries, or tries to.
type carrier struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// New makes a Runner. It carries nothing until Start or Look.
func New(cfg Config) *Runner {
	if cfg.Finished == nil {
		cfg.Finished = func(Job) error { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Runner{Config: cfg, books: books{cfg.Store}, ctx: ctx, cancel: cancel, running: map[string]*carrier{}, heard: map[string]bool{}}
}

// Start begins a job. It goes on in this process when Start has returned.
func (r *Runner) Start(ctx context.Context, s Spec) (Job, error) {
	if err := s.check(r.Store.Lanes); err != nil {
		return Job{}, err
	}
	j := newJob(s, r.Now())
	note, err := row(j, place{})
	if err != nil {
		return Job{}, err
	}
	if _, err := r.Store.FileJob(ctx, note); err != nil {
		return Job{}, err
	}
	r.carry(j.ID)
	return j, nil
}

// Get tells of one job; NotFound when there is none of this name.
func (r *Runner) Get(ctx context.Context, id string) (Job, error) { return r.books.get(ctx, id) }

// List tells of all jobs under way and the newest that are over, newest first.
func (r *Runner) List(ctx context.Context) ([]Job, error) { return r.books.list(ctx) }

// Cancel ends a job: another process that carries it replays nothing more from its next
// note on, which is at most seconds away. What was replayed stays so. Conflict: it is over.
func (r *Runner) Cancel(ctx context.Context, id string) (Job, error) {
	j, err := r.books.get(ctx, id)
	if err != nil || j.State == Cancelled {
		return j, err
	}
	r.drop(id)
	if j, err = r.books.get(ctx, id); err != nil { // as its carrier left it
		return j, err
	}
	if j.State == Running {
		j.end(Cancelled, "", r.Now())
		j, err = r.books.finish(ctx, j, r.Finished)
	}
	if err == nil && j.State != Cancelled {
		err = &weir.Error{Kind: weir.Conflict, Op: "replays", Message: "the bulk replay is over: " + string(j.State)}
	}
	return j, unavailable(err)
}

// drop ends the carrying of a job in this process, and waits for that.
func (r *Runner) drop(id string) {
	r.mu.Lock()
	c := r.running[id]
	r.mu.Unlock()
	if c != nil {
		c.cancel()
		<-c.done
	}
}

// Look takes up the jobs under way that nobody carries. control is lane 0's, as the sweep
// reads it. It returns at once.
func (r *Runner) Look(control lane.Control) {
	for _, note := range control.Jobs() {
		r.carry(note.ID)
	}
}

// carry carries a job in this process, unless it does already or another process does.
func (r *Runner) carry(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.running[id] != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.ctx)
	c := &carrier{cancel, make(chan struct{})}
	patient := !r.heard[id]
	r.running[id], r.heard[id] = c, true
	r.wg.Go(func() {
		defer close(c.done)
		defer cancel()
		if err := r.underLease(ctx, id, patient); err != nil && ctx.Err() == nil {
			r.Logger.Warn("replay: job left for now", "err", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, id)
	})
}

// leaseLook is the pause before a lease that another has is tried again.
const leaseLook = 2 * time.Second

// underLease carries a job under its lease. One that another has is tried again for as long
// as it can outlive its process where patient says so, and then left to the next Look.
func (r *Runner) underLease(ctx context.Context, id string, patient bool) error {
	cfg := lease.Config{Leases: r.Leases, Length: r.Lease, Now: r.Now, Log: r.Logger}
	for end := r.Now().Add(r.Lease + leaseLook); ; {
		l, err := lease.Acquire(ctx, cfg, "replay-"+id)
		if err == nil {
			defer l.Release(ctx)
			return r.run(l.Context(), id)
		}
		if !errors.Is(err, lease.ErrBusy) {
			return err
		}
		if !patient || r.Now().After(end) || !clock.Sleep(ctx, leaseLook) {
			return nil
		}
	}
}

// Close ends what this process carries, and waits for that as long as ctx lasts. The jobs
// stay under way: another process, or the next one, takes them up.
func (r *Runner) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
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
