package replay_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/replay"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// The tests of this file run the whole way: messages are filed, drained, die, and are
// replayed by wishes that holders grant.

// realLog is the log as the handler wires it.
type realLog struct{ *lane.Store }

func (l realLog) Replay(ctx context.Context, id weir.ID, force bool) error {
	_, err := l.Store.Replay(ctx, id, lane.ReplayOptions{Force: force})
	return err
}

// cms accepts or rejects, and records the accepted messages.
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
	r := weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: at, Duration: time.Since(at)}
	if c.rejects(string(d.Message.Body)) {
		r.Outcome, r.Status, r.Reason = weir.OutcomeRejected, 422, "bad content"
		return r
	}
	c.took = append(c.took, string(d.Message.Body))
	return r
}

func (c *cms) set(rejects func(body string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rejects = rejects
}

func (c *cms) record() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.took...)
}

// whole is a world with real holders.
type whole struct {
	t       *testing.T
	account *memory.Account
	store   *lane.Store
	append  *lane.Appender
	cms     *cms
	posted  map[string]int // by key
}

// instance is a process of it.
type instance struct {
	*replay.Runner
	store   *lane.Store
	drainer *drain.Drainer
	faults  *storagetest.Faults
}

type noBell struct{}

func (noBell) EnqueueNow(context.Context, int) error { return nil }

func simulateWhole(t *testing.T, lanes int, f func(*testing.T, *whole)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		account := memory.New(time.Now)
		w := &whole{t: t, account: account, cms: &cms{rejects: func(string) bool { return true }},
			posted: map[string]int{}}
		w.store = &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: lanes, Now: time.Now}
		if err := w.store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.append = lane.NewAppender(w.store, quiet)
		f(t, w)
	})
}

func (w *whole) start() *instance {
	p := &instance{faults: storagetest.NewFaults()}
	store := *w.store
	store.Table = p.faults.Table(w.account.Table())
	leases := p.faults.Leases(w.account.Leases())
	p.store = &store
	p.drainer = drain.New(drain.Config{Store: &store, Leases: leases, Sender: w.cms, Tickets: noBell{},
		Lease: 15 * time.Second, Settle: 2 * time.Second,
		Attempts: 5, Backoff: drain.Backoff{Min: time.Second, Max: time.Minute}, Now: time.Now, Log: quiet})
	p.Runner = replay.New(replay.Config{Store: &store, Log: realLog{&store}, Leases: leases, Lease: 15 * time.Second,
		Wake: p.drainer.Wake, Now: time.Now, Logger: quiet})
	w.t.Cleanup(func() { w.stop(p) })
	return p
}

func (w *whole) stop(p *instance) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		w.t.Errorf("close: %v", err)
	}
	if err := p.drainer.Close(ctx); err != nil {
		w.t.Errorf("close: %v", err)
	}
}

// sweep looks at all lanes, as a process does each minute.
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

// post files the next n messages of each key.
func (w *whole) post(p *instance, n int, keys ...string) {
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

// counts adds up the books of all lanes.
func (w *whole) counts() (c lane.Counts, waiting int64) {
	w.t.Helper()
	for number := range w.store.Lanes {
		control, err := w.store.ReadControl(w.t.Context(), number)
		if err != nil {
			w.t.Fatal(err)
		}
		n := control.Tail.Counts
		c.Delivered, c.Dead, c.Superseded = c.Delivered+n.Delivered, c.Dead+n.Dead, c.Superseded+n.Superseded
		waiting += control.WaitingCount()
	}
	return c, waiting
}

// rest waits until nothing waits.
func (w *whole) rest() lane.Counts {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		c, waiting := w.counts()
		if waiting == 0 {
			return c
		}
		if time.Now().After(end) {
			w.t.Fatalf("%d are waiting, %+v", waiting, c)
		}
	}
}

// inOrder checks that the CMS accepted each message once, and those of a key in order.
func (w *whole) inOrder(n int) {
	w.t.Helper()
	last, took := map[string]int{}, w.cms.record()
	for _, body := range took {
		var key string
		var at int
		fmt.Sscan(body, &key, &at)
		if at <= last[key] {
			w.t.Errorf("%s %d came after %d", key, at, last[key])
		}
		last[key] = at
	}
	if len(took) != n {
		w.t.Errorf("it took %d, and not %d", len(took), n)
	}
}

func (w *whole) begin(p *instance, s replay.Spec) replay.Job {
	w.t.Helper()
	time.Sleep(time.Millisecond) // later than the last one died
	j, err := p.Start(w.t.Context(), s)
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

func (w *whole) comes(p *instance, id string, s replay.State) replay.Job {
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
			w.t.Fatalf("not over in time: got %+v", j)
		}
	}
}

func TestWhole_ComesToItsEnd(t *testing.T) {
	simulateWhole(t, 3, func(t *testing.T, w *whole) {
		p := w.start()
		w.post(p, 20, keys...)
		if c := w.rest(); c.Dead != 100 {
			t.Fatalf("got %+v, want c.Dead == 100", c)
		}
		w.cms.set(func(body string) bool { return strings.HasPrefix(body, "/e ") && !strings.HasSuffix(body, "0") })
		plan, err := p.Plan(t.Context(), plain)
		if err != nil || plan.Count != 100 || plan.Refused != 0 || !plan.Complete || plan.EstimatedSeconds != 10 {
			t.Errorf("got %+v, %v, want err == nil && plan.Count == 100 && plan.Refused == 0 && "+
				"plan.Complete && plan.EstimatedSeconds == 10", plan, err)
		}
		j := w.comes(p, w.begin(p, plain).ID, replay.Done)
		if j.Matched != 100 || j.Replayed != 100 || j.Delivered != 82 || j.DeadAgain != 18 || j.Waiting != 0 {
			t.Errorf("got %+v, want j.Matched == 100 && j.Replayed == 100 && j.Delivered == 82 && "+
				"j.DeadAgain == 18 && j.Waiting == 0", j)
		}
		if c := w.rest(); c.Delivered != 82 || c.Dead != 18 {
			t.Errorf("got %+v, want c.Delivered == 82 && c.Dead == 18", c)
		}
		w.inOrder(82)
		// A message that died before a later one of its key was delivered stays dead.
		w.cms.set(func(string) bool { return false })
		plan, err = p.Plan(t.Context(), plain)
		if err != nil || plan.Count != 18 || plan.Refused != 18 {
			t.Errorf("got %+v, %v, want err == nil && plan.Count == 18 && plan.Refused == 18", plan, err)
		}
		if j = w.comes(p, w.begin(p, plain).ID, replay.Done); j.Replayed != 0 || j.Refused != 18 {
			t.Errorf("got %+v, want j.Replayed == 0 && j.Refused == 18", j)
		}
		w.inOrder(82)
		forced := plain
		forced.Force = true
		if j = w.comes(p, w.begin(p, forced).ID, replay.Done); j.Delivered != 18 || j.Refused != 0 {
			t.Errorf("got %+v, want j.Delivered == 18 && j.Refused == 0", j)
		}
		if c := w.rest(); c.Delivered != 100 || c.Dead != 0 {
			t.Errorf("got %+v, want c.Delivered == 100 && c.Dead == 0", c)
		}
	})
}

// TestWhole_WhileOthersCome: new messages of the same keys go on coming. Those replayed go
// in front of them or not at all.
func TestWhole_WhileOthersCome(t *testing.T) {
	simulateWhole(t, 2, func(t *testing.T, w *whole) {
		p := w.start()
		w.post(p, 20, keys...)
		w.rest()
		w.cms.set(func(string) bool { return false })
		j := w.begin(p, plain)
		for i := range 10 {
			w.post(p, 5, keys[len(keys)-1-i%len(keys)])
			time.Sleep(time.Second)
		}
		j = w.comes(p, j.ID, replay.Done)
		if j.Replayed+j.Refused != 100 || j.Delivered != j.Replayed || j.Refused == 0 || j.Delivered == 0 ||
			j.Skipped != 0 {
			t.Errorf("got %+v, want j.Replayed + j.Refused == 100 && j.Delivered == j.Replayed && "+
				"j.Refused != 0 && j.Delivered != 0 && j.Skipped == 0", j)
		}
		if c := w.rest(); c.Dead != j.Refused || c.Delivered != 50+j.Delivered {
			t.Errorf("got %+v, %+v, want c.Dead == j.Refused && c.Delivered == 50 + j.Delivered", c, j)
		}
		w.inOrder(int(50 + j.Delivered))
	})
}

// TestWhole_Paused: a job goes on while its lane is paused, and ends when that goes on.
func TestWhole_Paused(t *testing.T) {
	simulateWhole(t, 1, func(t *testing.T, w *whole) {
		p := w.start()
		w.post(p, 20, keys...)
		w.rest()
		w.cms.set(func(string) bool { return false })
		if err := w.store.Pause(t.Context(), weir.Pause{Reason: "lunch", Since: time.Now()}); err != nil {
			t.Fatal(err)
		}
		j := w.begin(p, plain)
		time.Sleep(5 * time.Minute)
		if got := w.comes(p, j.ID, replay.Running); got.Waiting != 100 || len(w.cms.record()) != 0 {
			t.Errorf("got %+v, want got.Waiting == 100 && len(w.cms.record()) == 0", got)
		}
		if err := w.store.Resume(t.Context(), 0, ""); err != nil {
			t.Fatal(err)
		}
		w.sweep(p)
		if j = w.comes(p, j.ID, replay.Done); j.Delivered != 100 {
			t.Errorf("got %+v, want j.Delivered == 100", j)
		}
		w.inOrder(100)
	})
}

// TestWhole_Crash kills the one process there is in the middle of a job, again and again.
func TestWhole_Crash(t *testing.T) {
	simulateWhole(t, 2, func(t *testing.T, w *whole) {
		p := w.start()
		w.post(p, 40, keys...)
		w.rest()
		w.cms.set(func(string) bool { return false })
		spec := plain
		spec.RatePerMinute = 300
		j := w.begin(p, spec)
		for range 4 {
			time.Sleep(7 * time.Second)
			p.faults.Set(func(storagetest.Call) storagetest.Fault {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			})
			w.stop(p)
			p = w.start()
			w.sweep(p)
			time.Sleep(time.Minute)
			w.sweep(p)
		}
		j = w.comes(p, j.ID, replay.Done)
		if j.Matched != 200 || j.Replayed != 200 || j.Delivered != 200 {
			t.Errorf("got %+v, want j.Matched == 200 && j.Replayed == 200 && j.Delivered == 200", j)
		}
		if c := w.rest(); c.Delivered != 200 || c.Dead != 0 {
			t.Errorf("got %+v, want c.Delivered == 200 && c.Dead == 0", c)
		}
		if n := len(w.cms.record()); n < 200 || n > 200+4*64 { // what was not committed comes again
			t.Errorf("it took %d", n)
		}
	})
}
