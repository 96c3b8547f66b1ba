package simulation_test

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"weir/internal/lane/jobrow"
	"weir/internal/replay"
	"weir/internal/weir"
)

// Any instance can run a bulk replay. Whatever happens to the instances, each bulk replay must end,
// leave no message out, and have numbers that add up.

// drawBulkReplays draws the number of bulk replays. In a seed with bulk replays the CMS rejects
// many messages, so that there are dead messages to replay.
func (s *settings) drawBulkReplays(d *dice) {
	if d.drawChance("bulks", 0.3) {
		s.bulk, s.bulkForce, s.bulkCancel = 1+d.drawBelow("bulk", 3),
			[]float64{0, 0, 0.5}[d.drawBelow("bulk force", 3)],
			[]float64{0, 0.3}[d.drawBelow("bulk cancel", 2)]
		s.rejects = 0.4
	}
}

// bulkCarrier returns the runner of a process's bulk replays. The runner has its own random faults
// of storage, so that it does not change the faults of the other parts of the process.
func (p *process) bulkCarrier() *replay.Runner {
	store := *p.store
	store.Table, store.Rand = p.newTable("bulk "), p.w.dice.newSource(p.name+" bulk store")
	return replay.New(replay.Config{Store: &store, Log: replay.LogOf(&store), Leases: p.newLeases(),
		Lease: p.w.lease, Wake: p.drainer.Wake, Now: p.now, Logger: discardLog})
}

// jobID matches the id of a bulk replay in a key or a name. The second part of the id comes from
// crypto/rand.
var jobID = regexp.MustCompile(`([0-9]{13})[0-9a-f]{8}`)

// withoutRandom removes the random part of each bulk replay's id from a text. The names of draws
// and the lines of the trace must depend only on the seed, and the random part does not come from
// the seed.
func withoutRandom(name string) string {
	if !hasLongHex(name, 13+8) {
		return name // the usual case; the regular expression would be too slow for all names
	}
	return jobID.ReplaceAllString(name, "$1")
}

// hasLongHex reports whether a text has n hexadecimal digits in a row.
func hasLongHex(text string, n int) bool {
	row := 0
	for i := range len(text) {
		if row++; text[i]-'0' > 9 && text[i]-'a' > 5 {
			row = 0
		}
		if row == n {
			return true
		}
	}

	return false
}

// replayInBulk lets operators start bulk replays, and cancel some of them.
func (w *world) replayInBulk(ctx context.Context) {
	for i := range w.bulk {
		name := fmt.Sprint("bulk operator ", i)
		at := w.dice.drawBetween(name, 5*time.Second, w.trouble+30*time.Second)
		w.upstream.Go(func() {
			time.Sleep(at)
			spec := replay.Spec{RatePerMinute: 30 + w.dice.drawBelow(name+" rate", 3000),
				StopAtErrorRate: 1, Force: w.dice.drawChance(name+" force", w.bulkForce)}
			p := w.slots[w.dice.drawBelow(name+" to", len(w.slots))].currentProcess()
			j, err := askProcess(ctx, p, name,
				func(ctx context.Context) (replay.Job, error) { return p.carrier.Start(ctx, spec) })
			w.trace.addLine("%s: %s begins a bulk replay (force %v): %v", p.name, name, spec.Force,
				err != nil)
			if err != nil || !w.dice.drawChance(name+" cancels", w.bulkCancel) {
				return
			}

			time.Sleep(w.dice.drawBetween(name+" cancels after", 100*time.Millisecond,
				20*time.Second))

			// The function that the first askProcess calls can still run after askProcess has
			// returned. So the code below must not change the variable p, which that function
			// reads.
			other := w.slots[w.dice.drawBelow(name+" cancels at", len(w.slots))].currentProcess()
			over, err := askProcess(ctx, other, name,
				func(ctx context.Context) (replay.Job,
					error) {
					return other.carrier.Cancel(ctx, j.ID)
				})

			w.trace.addLine("%s: %s cancels it: %s %v", other.name, name, over.State, err != nil)
		})
	}
}

func (w *world) areBulkReplaysOver(ctx context.Context) bool {
	jobs, err := jobrow.ReadAll(ctx, w.check.store)
	return err == nil && len(jobs) == 0
}

// checkBulkReplays checks that each bulk replay is over, and that its numbers add up. Before the
// call, the caller must wait until no work is left.
func (c *checker) checkBulkReplays(ctx context.Context) {
	r := replay.New(replay.Config{Store: c.store, Now: time.Now, Logger: discardLog})
	jobs, err := r.List(ctx)
	if err == nil {
		err = r.Close(ctx)
	}

	if err != nil {
		c.addViolation("bulk", "%v", err)
	}

	for _, j := range jobs {
		c.counts.Bulks++
		c.counts.BulkReplayed += int(j.Replayed)
		switch {
		case j.Replayed != j.Delivered+j.DeadAgain+j.Otherwise+j.Waiting:
			c.addViolation("bulk", "those replayed do not add up: %+v", j)
		case j.State == replay.Done &&
			(j.Waiting != 0 || j.Matched != j.Replayed+j.Refused+j.Skipped):
			c.addViolation("bulk", "the whole does not add up: %+v", j)
		case j.State == replay.Done:
			c.checkLeftOut(ctx, j)
		case j.State == replay.Running:
			c.addViolation("bulk", "it is not over: %+v", j)
		}
	}
}

// checkLeftOut checks that a bulk replay has left no message out. It looks for messages that died
// before the bulk replay began and are still dead. Without Force, a bulk replay may leave out a
// message if a later message of its key was delivered.
func (c *checker) checkLeftOut(ctx context.Context, j replay.Job) {
	const margin = 4 * time.Second // more than the clocks of two processes can differ
	for n := range c.w.lanes {
		l := c.laneOf(n)
		for _, f := range l.log {
			st, err := c.store.Messages().Status(ctx, f.id)
			if err == nil && st.Stage == weir.Dead && !f.erased &&
				f.died.Before(j.StartedAt.Add(-margin)) &&
				(j.Force || c.deliveredBehind(l, f, true) == nil) {
				c.addViolation("bulk", "seq %d of lane %d is dead since %s: %+v", f.id.Seq,
					n, f.died, j)
			}
		}
	}
}
