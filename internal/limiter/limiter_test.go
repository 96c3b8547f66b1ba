package limiter_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/limiter"
)

func perSecond(n int) limiter.Rate { return limiter.Rate{Count: n, Per: time.Second} }

func perMinute(n int) limiter.Rate { return limiter.Rate{Count: n, Per: time.Minute} }

// TestRate_HoldsOverAllProcesses lets processes, lanes and chains use a rate up. No period may have
// more requests than the rate, and the rate is used.
func TestRate_HoldsOverAllProcesses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rate                       limiter.Rate
		processes, lanes, requests int
		latency                    time.Duration
		used                       float64
	}{
		"FourByEight":  {perSecond(7), 4, 8, 1, 10 * time.Millisecond, 0.92},
		"FarStorage":   {perSecond(7), 4, 8, 1, 40 * time.Millisecond, 0.9},
		"OneLane":      {perSecond(7), 1, 1, 1, 10 * time.Millisecond, 0.85},
		"OneLaneEach":  {perSecond(7), 4, 1, 1, 10 * time.Millisecond, 0.85},
		"Chains":       {perSecond(7), 2, 4, 3, 10 * time.Millisecond, 0.85},
		"Fast":         {perSecond(100), 2, 16, 1, 10 * time.Millisecond, 0.85},
		"Slow":         {perMinute(90), 2, 4, 2, 10 * time.Millisecond, 0.9},
		"VerySlow":     {perMinute(6), 2, 2, 3, 10 * time.Millisecond, 0.9},
		"OneProcess":   {perSecond(5), 1, 8, 1, 10 * time.Millisecond, 0.92},
		"TwentyOfThem": {perSecond(20), 20, 2, 1, 10 * time.Millisecond, 0.85},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, test.rate)
				w.latency = test.latency
				length := max(time.Minute, 5*test.rate.Per)
				ctx, cancel := context.WithTimeout(t.Context(), length)
				defer cancel()
				for i := range test.processes {
					l := w.start(fmt.Sprint("process ", i))
					for range test.lanes {
						go w.send(ctx, l, test.requests)
					}
				}

				time.Sleep(length / 6)
				warm := time.Now()
				<-ctx.Done()
				most, all := w.busiest(warm)
				time.Sleep(time.Second)
				synctest.Wait()
				allowed := float64(test.rate.Count) * float64(length-length/6) /
					float64(test.rate.Per)
				t.Logf("busiest %d, used %.3f", most, float64(all)/allowed)
				if used := float64(all) / allowed; most > test.rate.Count || used < test.used {
					t.Errorf("got %d requests in the busiest period and %.3f of the rate used, "+
						"want at most %d and at least %.2f", most, used, test.rate.Count, test.used)
				}

				w.checkTransactions(length)
			})
		})
	}
}

// checkTransactions checks that no process made more than two transactions a second.
func (w *world) checkTransactions(length time.Duration) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, calls := range w.calls {
		if most := int(2*length.Seconds()) + 10; len(calls) > most {
			w.t.Errorf("%s: %d transactions in %s, want at most %d", name, len(calls), length, most)
		}
	}
}

// A process that sends nothing costs nothing.
func TestIdle_HasNoTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limiter.Rate{Count: 7, Per: time.Second})
		l := w.start("p")
		client := &http.Client{Transport: limiter.NewTransport(w, l)}
		time.Sleep(time.Hour)
		if got := len(w.calls["p"]); got != 0 {
			t.Fatalf("%d transactions before the first request, want none", got)
		}

		w.request(t.Context(), client)
		time.Sleep(3 * time.Second)
		before := len(w.calls["p"])
		time.Sleep(time.Hour)
		if got := len(w.calls["p"]); got != before || before > 5 {
			t.Errorf("%d transactions for one request, then %d, want at most 5, then none", before,
				got-before)
		}
	})
}

// The slots of a process that died stay its own: the others do not send sooner.
func TestDeadProcess_MakesNothingFaster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limiter.Rate{Count: 7, Per: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		living := w.start("living")
		for range 8 {
			go w.send(ctx, living, 1)
		}

		for i := range 10 { // processes that die while they have slots
			life, die := context.WithCancel(ctx)
			l := w.start(fmt.Sprint("dying ", i))
			for range 8 {
				go w.send(life, l, 1)
			}
			time.Sleep(5300 * time.Millisecond)
			die()
			l.Close()
		}

		<-ctx.Done()
		if most, _ := w.busiest(time.Now()); most > 7 {
			t.Errorf("%d requests in the busiest second, want at most 7", most)
		}
		time.Sleep(time.Second)
	})
}

// A CMS that takes less than the rate gets less, and the processes come back to the rate when it
// takes more again.
func TestOverload_SlowsAllProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limiter.Rate{Count: 10, Per: time.Second})
		w.limit = 4
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		limiters := []*limiter.Limiter{w.start("a"), w.start("bb")}
		for _, l := range limiters {
			for range 4 {
				go w.send(ctx, l, 1)
			}
		}

		time.Sleep(20 * time.Second)
		before := w.countArrivals(time.Now().Add(-10 * time.Second))
		if share := limiters[0].Pace(); share.Share > 0.6 || share.Reason == "" ||
			share.SlowSince.IsZero() || before > 60 {
			t.Errorf("after 20 s: pace %+v, %d requests in 10 s, want half the rate, and 60", share,
				before)
		}

		w.mu.Lock()
		w.limit = 10
		w.mu.Unlock()
		time.Sleep(2 * time.Minute)
		for _, l := range limiters {
			if pace := l.Pace(); pace.Share != 1 || pace.Reason != "" {
				t.Errorf("pace %+v two minutes later, want the whole rate", pace)
			}
		}

		if n := w.countArrivals(time.Now().Add(-10 * time.Second)); n < 85 {
			t.Errorf("%d requests in 10 s, want 85 at least", n)
		}
		cancel()
		time.Sleep(time.Second)
	})
}

// A Retry-After that one process gets holds all of them.
func TestRetryAfter_HoldsAllProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limiter.Rate{Count: 10, Per: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		a, b := w.start("a"), w.start("bb")
		go w.send(ctx, a, 1)
		go w.send(ctx, b, 1)
		time.Sleep(10 * time.Second)
		a.Observe(http.StatusServiceUnavailable, http.Header{"Retry-After": {"20"}})
		began := time.Now()
		time.Sleep(19 * time.Second)
		// b learns it within its next look
		if n := w.countArrivals(began.Add(2 * time.Second)); n != 0 {
			t.Errorf("%d requests in the pause, want none", n)
		}
		if b.Pace().PausedUntil.IsZero() {
			t.Error("the other process does not know the pause")
		}

		time.Sleep(11 * time.Second)
		if n := w.countArrivals(time.Now().Add(-5 * time.Second)); n < 40 {
			t.Errorf("%d requests in 5 s after the pause, want 40 at least", n)
		}
		cancel()
		time.Sleep(time.Second)
	})
}

// Without storage nothing is sent, and a wait ends with its context.
func TestStorageAway_SendsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limiter.Rate{Count: 10, Per: time.Second})
		w.isAway = true
		l := w.start("p")
		client := &http.Client{Transport: limiter.NewTransport(w, l)}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if status := w.request(ctx, client); status != 0 || ctx.Err() == nil {
			t.Errorf("status %d, context error %v, want a wait until the context ended", status,
				ctx.Err())
		}

		w.mu.Lock()
		if n := len(w.calls["p"]); n > 40 {
			t.Errorf("%d transactions in 30 s without storage, want 40 at most", n)
		}
		w.isAway = false
		w.mu.Unlock()
		began := time.Now()
		if status := w.request(t.Context(), client); status != http.StatusOK ||
			time.Since(began) > 3*time.Second {
			t.Errorf("status %d after %s, want 200 within 3 s", status, time.Since(began))
		}
	})
}

// If the clock of storage is set back by an hour, the processes do not wait an hour.
func TestStorageClock_SetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limiter.Rate{Count: 10, Per: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		l := w.start("p")
		go w.send(ctx, l, 1)
		time.Sleep(30 * time.Second)
		w.mu.Lock()
		w.ahead -= time.Hour
		w.mu.Unlock()
		time.Sleep(time.Minute)
		if n := w.countArrivals(time.Now().Add(-10 * time.Second)); n < 80 {
			t.Errorf("%d requests in 10 s, a minute after the clock was set back, want 80 at least", n)
		}
		cancel()
		time.Sleep(time.Second)
	})
}

// A chain whose CMS takes long for each request keeps no slots from the other lanes, and loses none
// of them for all processes.
func TestSlowChain_HoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limiter.Rate{Count: 5, Per: time.Second})
		l := w.start("p")
		attempt, end, err := newLane(l).begin(t.Context(), 4)
		if err != nil {
			t.Fatal(err)
		}

		client := &http.Client{Transport: limiter.NewTransport(w, l)}
		w.request(attempt, client)
		time.Sleep(10 * time.Second) // the CMS takes long
		idle := len(w.calls["p"])
		time.Sleep(10 * time.Second)
		if n := len(w.calls["p"]) - idle; n != 0 {
			t.Errorf("%d transactions while the chain waits for its answer, want none", n)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		go w.send(ctx, l, 1)
		<-ctx.Done()
		time.Sleep(time.Second)
		if n := w.countArrivals(time.Now().Add(-20 * time.Second)); n < 80 {
			t.Errorf("%d requests of another lane in 20 s, want 80 at least", n)
		}

		for range 3 {
			if status := w.request(attempt, client); status != http.StatusOK {
				t.Errorf("status %d of a later request of the chain, want 200", status)
			}
		}
		end()
	})
}
