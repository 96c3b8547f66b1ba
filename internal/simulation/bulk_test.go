package simulation_test

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"weir/internal/lane"
	"weir/internal/replay"
	"weir/internal/weir"
)

// Bulk replays: every instance may carry them, and whatever happens to instances, each
// comes to its end, has left nothing out, and its numbers add up.

// bulks draws how many there are.
func (s *settings) bulks(d *dice) {
	if d.chance("bulks", 0.3) {
		s.bulk, s.bulkForce, s.bulkCancel = 1+d.below("bulk", 3), []float64{0, 0, 0.5}[d.below("bulk force", 3)], []float64{0, 0.3}[d.below("bulk cancel", 2)]
		s.rejects = 0.4
	}
}

// bulkCarrier makes a process's runner. Its way to storage is its own.
func (p *process) bulkCarrier() *replay.Runner {
	store := *p.store
	store.Table, store.Rand = p.table("bulk "), p.w.dice.source(p.name+" bulk store")
	return replay.New(replay.Config{Store: &store, Log: bulkLog{&store}, Leases: p.leases(), Lease: p.w.lease,
		Wake: p.drainer.Wake, Now: p.now, Logger: quietLog})
}

// bulkLog is the log as the runner needs it.
type bulkLog struct{ *lane.Store }

func (l bulkLog) Replay(ctx context.Context, id weir.ID, force bool) error {
	_, err := l.Store.Replay(ctx, id, lane.ReplayOptions{Force: force})
	return err
}

// bulkLook shows the runner what a sweep reads of lane 0, as the handler does.
type bulkLook struct {
	mailLook
	carrier *replay.Runner
}

func (l bulkLook) Control(ctx context.Context, number int) (lane.Control, error) {
	c, err := l.mailLook.Control(ctx, number)
	if err == nil {
		l.carrier.ResumeOrphans(c)
	}
	return c, err
}

// jobID finds a job's id in a key or a name. Its end is drawn by crypto/rand, which is not
// the seed's: chances and traces go without it.
var jobID = regexp.MustCompile(`([0-9]{13})[0-9a-f]{8}`)

func seeded(name string) string { return jobID.ReplaceAllString(name, "$1") }

// replayInBulk lets operators begin bulk replays, and cancel some.
func (w *world) replayInBulk(ctx context.Context) {
	for i := range w.bulk {
		name := fmt.Sprint("bulk operator ", i)
		at := w.dice.between(name, 5*time.Second, w.trouble+30*time.Second)
		w.upstream.Go(func() {
			time.Sleep(at)
			spec := replay.Spec{RatePerMinute: 30 + w.dice.below(name+" rate", 3000), StopAtErrorRate: 1, Force: w.dice.chance(name+" force", w.bulkForce)}
			p := w.slots[w.dice.below(name+" to", len(w.slots))].now()
			j, err := ask(ctx, p, name, func(ctx context.Context) (replay.Job, error) { return p.carrier.Start(ctx, spec) })
			w.trace.add("%s: %s begins a bulk replay (force %v): %v", p.name, name, spec.Force, err != nil)
			if err != nil || !w.dice.chance(name+" cancels", w.bulkCancel) {
				return
			}
			time.Sleep(w.dice.between(name+" cancels after", 100*time.Millisecond, 20*time.Second))
			// The calls may outlive this: each has its own variables.
			other := w.slots[w.dice.below(name+" cancels at", len(w.slots))].now()
			over, err := ask(ctx, other, name, func(ctx context.Context) (replay.Job, error) { return other.carrier.Cancel(ctx, j.ID) })
			w.trace.add("%s: %s cancels it: %s %v", other.name, name, over.State, err != nil)
		})
	}
}

// carried says whether all bulk replays are over.
func (w *world) carried(ctx context.Context) bool {
	jobs, err := w.check.store.Jobs(ctx)
	return err == nil && len(jobs) == 0
}

// bulked holds, at rest, what must hold of bulk replays.
func (c *checker) bulked(ctx context.Context) {
	r := replay.New(replay.Config{Store: c.store, Now: time.Now, Logger: quietLog})
	jobs, err := r.List(ctx)
	if err == nil {
		err = r.Close(ctx)
	}
	if err != nil {
		c.failed("bulk", "%v", err)
	}
	for _, j := range jobs {
		c.counts.Bulks++
		c.counts.BulkReplayed += int(j.Replayed)
		switch {
		case j.Replayed != j.Delivered+j.DeadAgain+j.Otherwise+j.Waiting:
			c.failed("bulk", "those replayed do not add up: %+v", j)
		case j.State == replay.Done && (j.Waiting != 0 || j.Matched != j.Replayed+j.Refused+j.Skipped):
			c.failed("bulk", "the whole does not add up: %+v", j)
		case j.State == replay.Done:
			c.leftOut(ctx, j)
		case j.State == replay.Running:
			c.failed("bulk", "it is not over: %+v", j)
		}
	}
}

// leftOut holds that nothing is dead any more that was before a bulk replay began, but for
// what stands in front of a delivery.
func (c *checker) leftOut(ctx context.Context, j replay.Job) {
	const clocks = 4 * time.Second // how far two of them may differ, and then some
	for n := range c.w.lanes {
		l := c.lane(n)
		for _, f := range l.log {
			st, err := c.store.Status(ctx, f.id)
			if err == nil && st.Stage == weir.Dead && f.died.Before(j.StartedAt.Add(-clocks)) && (j.Force || c.deliveredBehind(l, f) == nil) {
				c.failed("bulk", "seq %d of lane %d is dead since %s: %+v", f.id.Seq, n, f.died, j)
			}
		}
	}
}
