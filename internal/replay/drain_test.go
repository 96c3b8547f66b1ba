package replay_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/replay"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// The tests of this file use real holders: package drain delivers the messages and grants the
// requests for replays.

// cms is a CMS that accepts or rejects messages by their bodies, and records the bodies that it
// accepted.
type cms struct {
	mu      sync.Mutex
	rejects func(body string) bool
	took    []string
}

func (c *cms) Send(ctx context.Context, d weir.Delivery) weir.Result {
	at := time.Now()
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
		return weir.Result{Outcome: weir.OutcomeNone, StartedAt: at, Unanswered: true}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	r := weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: at,
		Duration: time.Since(at)}

	if c.rejects(string(d.Message.Body)) {
		r.Outcome, r.Status, r.Reason = weir.OutcomeRejected, 422, "bad content"
		return r
	}

	c.took = append(c.took, string(d.Message.Body))

	return r
}

func (c *cms) setRejects(rejects func(body string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rejects = rejects
}

func (c *cms) listTaken() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.took...)
}

// whole is a storage account with a CMS, for processes that deliver messages with package drain.
type whole struct {
	t       *testing.T
	account *memory.Account
	store   *lane.Store
	append  *lane.Appender
	cms     *cms
	posted  map[string]int // number of posted messages, by key
}

// instance is a process of Weir with a drainer and a runner.
type instance struct {
	*replay.Runner
	store   *lane.Store
	drainer *drain.Drainer
	faults  *storagetest.Faults
}

func simulateWhole(t *testing.T, lanes int, f func(*testing.T, *whole)) {
	t.Helper()
	lanetest.Simulate(t, func(t *testing.T) {
		l := lanetest.New(t, lanes)
		f(t, &whole{t: t, account: l.Account, store: l.Store, append: l.Appender,
			posted: map[string]int{}, cms: &cms{rejects: func(string) bool { return true }}})
	})
}

func (w *whole) startProcess() *instance {
	p := &instance{faults: storagetest.NewFaults()}
	store := *w.store
	store.Table = p.faults.Table(w.account.Table())
	leases := p.faults.Leases(w.account.Leases())
	p.store = &store
	p.drainer = drain.New(drain.Config{Store: &store, Leases: leases, Sender: w.cms,
		Tickets: lanetest.NoTickets{}, Lease: 15 * time.Second, Settle: 2 * time.Second,
		Attempts: 5, Backoff: drain.Backoff{Min: time.Second, Max: time.Minute}, Now: time.Now,
		Log: lanetest.Quiet})

	p.Runner = replay.New(replay.Config{Store: &store, Log: replay.LogOf(&store), Leases: leases,
		Lease: 15 * time.Second,
		Wake:  p.drainer.Wake, Now: time.Now, Logger: lanetest.Quiet})
	w.t.Cleanup(func() { w.stop(p) })

	return p
}

func (w *whole) stop(p *instance) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		w.t.Errorf("Close = %v, want no error", err)
	}

	if err := p.drainer.Close(ctx); err != nil {
		w.t.Errorf("Close = %v, want no error", err)
	}
}

// sweep wakes all lanes and resumes jobs, as a process does each minute.
func (w *whole) sweep(p *instance) {
	for number := range w.store.Lanes {
		p.drainer.Wake(number)
	}

	c, err := p.store.ReadControl(w.t.Context(), 0)
	if err != nil {
		w.t.Fatal(err)
	}

	p.ResumeOrphans(c)
}

// postEach appends the next n messages of each key, and sweeps.
func (w *whole) postEach(p *instance, n int, keys ...string) {
	w.t.Helper()
	for range n {
		for _, key := range keys {
			w.posted[key]++
			m := weir.Message{Contract: "article", Key: key, ContentType: "application/xml",
				Body: fmt.Appendf(nil, "%s %d", key, w.posted[key])}
			if _, err := w.append.Append(w.t.Context(), m, ""); err != nil {
				w.t.Fatal(err)
			}
		}
	}

	w.sweep(p)
}

// addUpCounts returns the sums of the counters of all lanes, and the number of their waiting
// messages.
func (w *whole) addUpCounts() (c lane.Counts, waiting int64) {
	w.t.Helper()
	for number := range w.store.Lanes {
		control, err := w.store.ReadControl(w.t.Context(), number)
		if err != nil {
			w.t.Fatal(err)
		}

		n := control.Tail.Counts
		c.Delivered, c.Dead, c.Superseded = c.Delivered+n.Delivered, c.Dead+n.Dead,
			c.Superseded+n.Superseded
		waiting += control.WaitingCount()
	}

	return c, waiting
}

// waitUntilEmpty returns the sums of the lanes' counters when no message waits any more.
func (w *whole) waitUntilEmpty() lane.Counts {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		c, waiting := w.addUpCounts()
		if waiting == 0 {
			return c
		}

		if time.Now().After(end) {
			w.t.Fatalf("after 10m: got %d waiting messages, %+v, want none", waiting, c)
		}
	}
}

// checkOrder checks that the CMS accepted n messages, no message twice, and the messages of each
// key in order.
func (w *whole) checkOrder(n int) {
	w.t.Helper()
	last, took := map[string]int{}, w.cms.listTaken()
	for _, body := range took {
		var key string
		var at int
		fmt.Sscan(body, &key, &at)
		if at <= last[key] {
			w.t.Errorf("key %s: got message %d after %d, want a later message", key, at, last[key])
		}

		last[key] = at
	}

	if len(took) != n {
		w.t.Errorf("the CMS accepted %d messages, want %d", len(took), n)
	}
}

func (w *whole) startJob(p *instance, s replay.Spec) replay.Job {
	w.t.Helper()
	time.Sleep(time.Millisecond) // so that the job starts after the last message became dead
	j, err := p.Start(w.t.Context(), s)
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

func (w *whole) waitForState(p *instance, id string, s replay.State) replay.Job {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		j, err := p.Get(w.t.Context(), id)
		if err != nil {
			w.t.Fatal(err)
		}

		if j.State == s {
			return j
		}

		if time.Now().After(end) {
			w.t.Fatalf("after 10m: got %+v, want state %v", j, s)
		}
	}
}

func TestWhole_ComesToItsEnd(t *testing.T) {
	simulateWhole(t, 3, func(t *testing.T, w *whole) {
		p := w.startProcess()
		w.postEach(p, 20, keys...)
		if c := w.waitUntilEmpty(); c.Dead != 100 {
			t.Fatalf("got %+v, want Dead 100", c)
		}

		w.cms.setRejects(func(body string) bool {
			return strings.HasPrefix(body, "/e ") &&
				!strings.HasSuffix(body, "0")
		})

		plan, err := p.Plan(t.Context(), plain)
		if err != nil || plan.Count != 100 || plan.Refused != 0 || !plan.Complete ||
			plan.EstimatedSeconds != 10 {
			t.Errorf("got %+v, %v, want Count 100, Refused 0, Complete true, EstimatedSeconds 10 and no error", plan,
				err)
		}

		j := w.waitForState(p, w.startJob(p, plain).ID, replay.Done)
		if j.Matched != 100 || j.Replayed != 100 || j.Delivered != 82 || j.DeadAgain != 18 ||
			j.Waiting != 0 {
			t.Errorf("got %+v, want Matched 100, Replayed 100, Delivered 82, DeadAgain 18 and Waiting 0", j)
		}

		if c := w.waitUntilEmpty(); c.Delivered != 82 || c.Dead != 18 {
			t.Errorf("got %+v, want Delivered 82 and Dead 18", c)
		}

		w.checkOrder(82)

		// The dead messages are not replayed, because later messages of their key were delivered.
		w.cms.setRejects(func(string) bool { return false })
		plan, err = p.Plan(t.Context(), plain)
		if err != nil || plan.Count != 18 || plan.Refused != 18 {
			t.Errorf("got %+v, %v, want Count 18, Refused 18 and no error", plan, err)
		}

		if j = w.waitForState(p, w.startJob(p, plain).ID, replay.Done); j.Replayed != 0 ||
			j.Refused != 18 {
			t.Errorf("got %+v, want Replayed 0 and Refused 18", j)
		}

		w.checkOrder(82)
		forced := plain
		forced.Force = true
		if j = w.waitForState(p, w.startJob(p, forced).ID, replay.Done); j.Delivered != 18 ||
			j.Refused != 0 {
			t.Errorf("got %+v, want Delivered 18 and Refused 0", j)
		}

		if c := w.waitUntilEmpty(); c.Delivered != 100 || c.Dead != 0 {
			t.Errorf("got %+v, want Delivered 100 and Dead 0", c)
		}
	})
}

// New messages of the same keys are posted during a job. A dead message must be delivered before
// the new messages of its key, or stay dead.
func TestWhole_WhileOthersCome(t *testing.T) {
	simulateWhole(t, 2, func(t *testing.T, w *whole) {
		p := w.startProcess()
		w.postEach(p, 20, keys...)
		w.waitUntilEmpty()
		w.cms.setRejects(func(string) bool { return false })
		j := w.startJob(p, plain)

		for i := range 10 {
			w.postEach(p, 5, keys[len(keys)-1-i%len(keys)])
			time.Sleep(time.Second)
		}

		j = w.waitForState(p, j.ID, replay.Done)
		if j.Replayed+j.Refused != 100 || j.Delivered != j.Replayed || j.Refused == 0 ||
			j.Delivered == 0 ||
			j.Skipped != 0 {
			t.Errorf("got %+v, want 100 messages replayed or refused, at least one of each, and all replayed ones "+
				"delivered", j)
		}

		if c := w.waitUntilEmpty(); c.Dead != j.Refused || c.Delivered != 50+j.Delivered {
			t.Errorf("got %+v, %+v, want Dead %v and Delivered %v", c, j, j.Refused, 50+j.Delivered)
		}

		w.checkOrder(int(50 + j.Delivered))
	})
}

// A job requests replays while the lane is paused. The job ends after the lane is resumed.
func TestWhole_Paused(t *testing.T) {
	simulateWhole(t, 1, func(t *testing.T, w *whole) {
		p := w.startProcess()
		w.postEach(p, 20, keys...)
		w.waitUntilEmpty()
		w.cms.setRejects(func(string) bool { return false })
		if err := w.store.Pauses().Pause(t.Context(), weir.Pause{Reason: "lunch", Since: time.Now()}); err != nil {
			t.Fatal(err)
		}

		j := w.startJob(p, plain)
		time.Sleep(5 * time.Minute)

		if got := w.waitForState(p, j.ID, replay.Running); got.Waiting != 100 ||
			len(w.cms.listTaken()) != 0 {
			t.Errorf("got %+v, want Waiting 100, and no message at the CMS", got)
		}

		if err := w.store.Pauses().Resume(t.Context(), 0, ""); err != nil {
			t.Fatal(err)
		}

		w.sweep(p)
		if j = w.waitForState(p, j.ID, replay.Done); j.Delivered != 100 {
			t.Errorf("got %+v, want Delivered 100", j)
		}

		w.checkOrder(100)
	})
}

// TestWhole_Crash kills the only process four times, in the middle of a job.
func TestWhole_Crash(t *testing.T) {
	simulateWhole(t, 2, func(t *testing.T, w *whole) {
		p := w.startProcess()
		w.postEach(p, 40, keys...)
		w.waitUntilEmpty()
		w.cms.setRejects(func(string) bool { return false })
		spec := plain
		spec.RatePerMinute = 300
		j := w.startJob(p, spec)

		for range 4 {
			time.Sleep(7 * time.Second)
			p.faults.Set(func(storagetest.Call) storagetest.Fault {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			})
			w.stop(p)
			p = w.startProcess()
			w.sweep(p)
			time.Sleep(time.Minute)
			w.sweep(p)
		}

		j = w.waitForState(p, j.ID, replay.Done)
		if j.Matched != 200 || j.Replayed != 200 || j.Delivered != 200 {
			t.Errorf("got %+v, want Matched 200, Replayed 200 and Delivered 200", j)
		}

		if c := w.waitUntilEmpty(); c.Delivered != 200 || c.Dead != 0 {
			t.Errorf("got %+v, want Delivered 200 and Dead 0", c)
		}

		// after a crash uncommitted deliveries are repeated
		if n := len(w.cms.listTaken()); n < 200 || n > 200+4*64 {
			t.Errorf("the CMS accepted %d messages, want 200 to %d", n, 200+4*64)
		}
	})
}
