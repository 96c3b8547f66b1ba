package poll_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/poll"
	"weir/internal/storage/memory"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// world is a storage account, a slow CMS, and an appender in a process that drains no lane.
type world struct {
	t       *testing.T
	account *memory.Account
	store   *lane.Store
	append  *lane.Appender
	takes   time.Duration // time that the CMS takes for an attempt

	mu       sync.Mutex
	accepted map[string]time.Time   // time from which an attempt is allowed to begin, by message
	begun    map[string][]time.Time // times at which attempts began, by message
	flying   map[int]int            // number of attempts in flight, by lane
	overlaps int
}

func newWorld(t *testing.T, lanes int, takes time.Duration) *world {
	l := lanetest.New(t, lanes)
	return &world{t: t, account: l.Account, store: l.Store, append: l.Appender, takes: takes,
		accepted: map[string]time.Time{}, begun: map[string][]time.Time{}, flying: map[int]int{}}
}

// Send is the CMS.
func (w *world) Send(ctx context.Context, d weir.Delivery) weir.Result {
	id, number := d.Message.ID.String(), d.Message.ID.Lane
	w.mu.Lock()
	w.begun[id] = append(w.begun[id], time.Now())
	if w.flying[number]++; w.flying[number] > 1 {
		w.overlaps++
	}

	w.mu.Unlock()
	time.Sleep(w.takes)
	w.mu.Lock()
	w.flying[number]--
	w.mu.Unlock()

	return weir.Result{Outcome: weir.OutcomeDelivered, Status: 200,
		StartedAt: time.Now().Add(-w.takes), Duration: w.takes}
}

// EnqueueNow does nothing, because there are no triggers.
func (w *world) EnqueueNow(context.Context, int) error { return nil }

// Sweep does nothing, because the tests need no sweep.
func (w *world) Sweep(context.Context) error { return nil }

func (w *world) acceptNow(n int) { w.putDue(n, time.Time{}) }

// putDue appends a message, and records when its attempt is allowed to begin: now, or at the due
// time if the due time is in the future.
func (w *world) putDue(n int, due time.Time) {
	m := weir.Message{Contract: "article", Key: fmt.Sprintf("/p/%d", n%17),
		ContentType: "application/xml", Body: []byte("<a/>"), DueAt: due}
	r, err := w.append.Append(w.t.Context(), m, "")
	if err != nil {
		w.t.Error(err)
		return
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.accepted[r.Message.ID.String()] = time.Now()
	if due.After(time.Now()) {
		w.accepted[r.Message.ID.String()] = due
	}
}

func (w *world) newDrainer(sender drain.Sender, notAfter time.Time) *drain.Drainer {
	store := *w.store
	return drain.New(drain.Config{
		Store: &store, Leases: w.account.Leases(), Sender: sender, Tickets: w,
		Lease:  15 * time.Second,
		Settle: time.Second, Attempts: 5,
		Backoff: drain.Backoff{Min: time.Second, Max: time.Minute}, Now: time.Now, Log: quiet,
		NotAfter: notAfter,
	})
}

var tenSeconds = poll.Config{Period: 10 * time.Second, Idle: 2 * time.Second,
	Estimate: 100 * time.Millisecond, Tolerance: 5, Timeout: time.Second}

// runOnce runs a process whose period begins now. The process has no state of earlier processes.
func (w *world) runOnce(ctx context.Context, cfg poll.Config) (poll.Summary, error) {
	meter, start := poll.NewMeter(w, time.Now), time.Now()
	run := &poll.Run{Config: cfg, Start: start, Lanes: w.store.Lanes, Log: w.store,
		Drainer: w.newDrainer(meter, cfg.NotAfter(start)),
		Sweeper: w, Meter: meter, Now: time.Now, Logger: quiet}
	return run.Do(ctx)
}

// measureLateness returns the longest wait of a message for its first attempt, and the number of
// messages that did not have exactly one attempt. It reports an error for an attempt that began too
// early.
func (w *world) measureLateness() (longest time.Duration, notOnce int) {
	for id, at := range w.accepted {
		begun := w.begun[id]
		if len(begun) != 1 {
			notOnce++
		}

		if len(begun) > 0 && begun[0].Before(at) {
			w.t.Errorf("message %s was sent %s too early, want it sent after it is accepted and due", id,
				at.Sub(begun[0]))
		}

		if len(begun) > 0 {
			longest = max(longest, begun[0].Sub(at))
		}
	}

	return longest, notOnce
}

func TestPeriods_DeliverEachMessageWithinIdleAndASecond(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 3, 40*time.Millisecond)
			dice, start := rand.New(rand.NewPCG(seed, 1)), time.Now()
			const periods = 6
			putting := make(chan int)
			go func() {
				n := 0
				for ; time.Since(start) < (periods-1)*tenSeconds.Period; n++ {
					time.Sleep(time.Duration(dice.Int64N(int64(1500 * time.Millisecond))))
					due := time.Time{}
					if n%3 == 0 {
						due = time.Now().Add(time.Duration(dice.Int64N(int64(8 * time.Second))))
					}
					w.putDue(n, due)
				}

				putting <- n
			}()

			delivered, starts := 0, []time.Time{}
			for n := range periods {
				begun := start.Add(time.Duration(n) * tenSeconds.Period)
				time.Sleep(time.Until(begun))
				starts = append(starts, begun)
				s, err := w.runOnce(t.Context(), tenSeconds)
				if err != nil || time.Since(begun) > tenSeconds.Period {
					t.Errorf("process %d ended %s after its start with the error %v; want %s at most and no error", n,
						time.Since(begun), err, tenSeconds.Period)
				}

				delivered += s.Messages
			}

			put := <-putting
			longest, notOnce := w.measureLateness()
			if longest > tenSeconds.Idle+time.Second || notOnce > 0 || delivered != put ||
				w.overlaps > 0 {
				t.Errorf("seed %d: %d of %d delivered, %d not sent once, %d overlaps, longest wait %s; want "+
					"each sent once within %s",
					seed, delivered, put, notOnce, w.overlaps, longest, tenSeconds.Idle+time.Second)
			}

			w.checkNoneLate(starts, tenSeconds)
			if seed == 0 {
				t.Logf("%d messages over %d periods: longest wait %s", put, periods, longest)
			}
		})
	}
}

// checkNoneLate checks that each attempt began so early that its timeout ended within the period.
func (w *world) checkNoneLate(starts []time.Time, cfg poll.Config) {
	for id, begun := range w.begun {
		for _, at := range begun {
			into := at.Sub(starts[0]) % cfg.Period
			if into > cfg.Period-cfg.Timeout {
				w.t.Errorf("an attempt of %s began %s into its period, want at most %v", id, into,
					cfg.Period-cfg.Timeout)
			}
		}
	}
}

func TestPeriods_SeveralDeliverABacklog(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]time.Duration{"Fast": 70 * time.Millisecond,
		"AsSlowAsTheTimeout": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1, takes)
				cfg := tenSeconds
				cfg.Tolerance = 1
				messages := int(25 * time.Second / takes)
				for n := range messages {
					w.acceptNow(n)
				}

				start, starts, delivered := time.Now(), []time.Time{}, 0
				for n := range 4 {
					begun := start.Add(time.Duration(n) * cfg.Period)
					time.Sleep(time.Until(begun))
					starts = append(starts, begun)
					s, err := w.runOnce(t.Context(), cfg)
					if err != nil {
						t.Error(err)
					}

					if n < 2 && s.Idle > 0.12 {
						t.Errorf(
							"process %d was idle although messages waited: %s, want Idle at most 0.12", n, s)
					}

					if ended := time.Since(begun); ended > cfg.Period {
						t.Errorf("process %d ended after %s, want at most %v", n, ended, cfg.Period)
					}

					delivered += s.Messages
				}

				if _, notOnce := w.measureLateness(); delivered != messages || notOnce > 0 ||
					w.overlaps > 0 {
					t.Errorf("%d of %d delivered, %d not sent once, %d overlaps; want each sent once", delivered,
						messages,
						notOnce, w.overlaps)
				}

				w.checkNoneLate(starts, cfg)
			})
		})
	}
}

// A process starts every 5 s with a period of 10 s, so two processes overlap. A Functions host
// works at the same time, too.
func TestPeriods_OverlappingAndBesideAHost(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2, 30*time.Millisecond)
			dice := rand.New(rand.NewPCG(seed, 2))
			host := w.newDrainer(w, time.Time{})
			var all sync.WaitGroup
			for n := range 6 {
				all.Go(func() {
					time.Sleep(time.Duration(n) * 5 * time.Second)
					if _, err := w.runOnce(t.Context(), tenSeconds); err != nil {
						t.Error(err)
					}
				})
			}

			for n := range 300 {
				time.Sleep(time.Duration(dice.Int64N(int64(200 * time.Millisecond))))
				w.acceptNow(n)
				if dice.IntN(3) == 0 {
					host.Wake(n % 2)
				}
			}

			all.Wait()
			if err := host.Close(t.Context()); err != nil {
				t.Error(err)
			}

			if _, err := w.runOnce(t.Context(), tenSeconds); err != nil {
				t.Error(err)
			}

			if _, notOnce := w.measureLateness(); len(w.accepted) != 300 || notOnce > 0 ||
				w.overlaps > 0 {
				t.Errorf("seed %d: %d accepted, %d not sent once, %d overlaps; want 300 accepted, each sent once", seed,
					len(w.accepted),
					notOnce, w.overlaps)
			}
		})
	}
}
