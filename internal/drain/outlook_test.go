package drain_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// simulateLanes is simulate for a storage with four lanes.
func simulateLanes(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	lanetest.Simulate(t, func(t *testing.T) {
		lanes := lanetest.New(t, 4)
		f(t, &world{t: t, lanes: lanes, account: lanes.Account, store: lanes.Store,
			cms: &fakeCMS{answer: answerAfter(20*time.Millisecond, 200)}})
	})
}

// postToLanes posts messages with keys of their own, until each lane has n.
func (w *world) postToLanes(n int, change ...func(*weir.Message)) (ids []weir.ID) {
	w.t.Helper()
	var count [4]int
	for i := 0; len(ids) < 4*n; i++ {
		key := fmt.Sprint("key", i)
		if number := lane.Of(key, 4); count[number] < n {
			count[number]++
			ids = append(ids, w.post(key, "x", change...))
		}
	}

	return ids
}

// waitForLanes waits until each lane has delivered a message, and returns how long it took.
func (w *world) waitForLanes(ids []weir.ID, limit time.Duration) time.Duration {
	w.t.Helper()
	began := time.Now()
	for ; time.Since(began) < limit; time.Sleep(50 * time.Millisecond) {
		delivered := map[int]bool{}
		for _, id := range ids {
			if w.status(id).Stage == weir.Delivered {
				delivered[id.Lane] = true
			}
		}

		if len(delivered) == 4 {
			return time.Since(began)
		}
	}

	w.t.Fatalf("after %s not each lane has delivered a message", limit)

	return 0
}

// The CMS is away for a minute. When it is back, the first lane that notices it lets the others
// know.
func TestOutlook_AllLanesDeliverSoon(t *testing.T) {
	for name, answer := range map[string]weir.Result{"NoConnection": noConnection,
		"Busy": newAnswer(503), "Refused": newAnswer(403)} {
		for processes, limit := range map[int]time.Duration{1: 12 * time.Second,
			2: 20 * time.Second} {
			t.Run(fmt.Sprint(name, processes), func(t *testing.T) {
				simulateLanes(t, func(t *testing.T, w *world) {
					w.cms.setAnswer(
						func(context.Context, weir.Delivery) weir.Result { return answer })
					ids := w.postToLanes(3)

					for i := range processes {
						p := w.start(withDefaultBackoff)
						for number := i; number < 4; number += processes {
							p.Wake(number)
						}
					}

					time.Sleep(time.Minute)
					w.cms.setAnswer(answerAfter(20*time.Millisecond, 200))
					if took := w.waitForLanes(ids, time.Hour); took > limit {
						t.Errorf("each lane has delivered after %s, want %s at most", took, limit)
					}
				})
			})
		}
	}
}

// Most outages are restarts: when the CMS is back, the first message is delivered within one and a
// half seconds.
func TestOutlook_DeliversAtOnceAfterAShortOutage(t *testing.T) {
	for name, answer := range map[string]weir.Result{"NoConnection": noConnection,
		"Busy": newAnswer(503), "Refused": newAnswer(403)} {
		for _, lasts := range []time.Duration{5 * time.Second, 20 * time.Second, 50 * time.Second} {
			t.Run(fmt.Sprint(name, lasts), func(t *testing.T) {
				simulateLanes(t, func(t *testing.T, w *world) {
					w.cms.setAnswer(
						func(context.Context, weir.Delivery) weir.Result { return answer })
					ids := w.postToLanes(3)
					p := w.start(withDefaultBackoff)
					for number := range 4 {
						p.Wake(number)
					}

					time.Sleep(lasts)
					sent := len(w.cms.listRequests())
					w.cms.setAnswer(answerAfter(20*time.Millisecond, 200))
					time.Sleep(1500 * time.Millisecond)

					if !slices.ContainsFunc(ids,
						func(id weir.ID) bool { return w.status(id).Stage == weir.Delivered }) {
						t.Error("got no delivery within 1.5 s, want one")
					}

					if most := 4*firstProbesOfALane + 4*int(lasts/time.Second); sent > most {
						t.Errorf("got %d requests while the CMS was away, want %d at most",
							sent, most)
					}
				})
			})
		}
	}
}

// firstProbesOfALane is more than the number of requests that a lane with three keys sends before
// it pauses.
const firstProbesOfALane = 4

// A process has found all lanes in pauses of an hour, and has sent nothing itself. Another process
// delivers a message of one lane, because an operator resumed it. The first process learns that
// from storage.
func TestOutlook_ARecoveryOfAnotherProcess(t *testing.T) {
	simulateLanes(t, func(t *testing.T, w *world) {
		longPauses := func(c *drain.Config) {
			c.Backoff = drain.Backoff{Min: time.Hour,
				Max: time.Hour}
		}

		w.cms.setAnswer(func(context.Context, weir.Delivery) weir.Result { return newAnswer(503) })
		ids := w.postToLanes(2)
		former := w.start(longPauses)
		for number := range 4 {
			former.Wake(number)
		}

		time.Sleep(time.Minute)
		former.close(t)
		w.cms.setAnswer(answerAfter(20*time.Millisecond, 200))
		waiting := w.start(longPauses)
		for number := 1; number < 4; number++ {
			waiting.Wake(number)
		}

		time.Sleep(5 * time.Minute)
		if n := w.lanes.Control(0).WaitingCount(); n != 2 {
			t.Fatalf("lane 0 has %d waiting messages, want 2", n)
		}

		if err := w.store.Pauses().Resume(t.Context(), 0, ""); err != nil {
			t.Fatal(err)
		}

		w.start(longPauses).Wake(0)
		if took := w.waitForLanes(ids, time.Hour); took > time.Minute {
			t.Errorf("each lane has delivered after %s, want a minute at most", took)
		}
	})
}

// The CMS has asked one lane for a pause. Deliveries of other lanes do not end it.
func TestOutlook_APauseThatTheCMSAskedForGoesOn(t *testing.T) {
	simulateLanes(t, func(t *testing.T, w *world) {
		began := time.Now()
		var isBack atomic.Bool
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			r := newAnswer(503)
			switch {
			case d.Message.ID.Lane == 0 && time.Since(began) < 10*time.Minute:
				r.RetryAfter = 10 * time.Minute
			case isBack.Load():
				return answerAfter(20*time.Millisecond, 200)(ctx, d)
			}

			return r
		})

		w.postToLanes(2)
		p := w.start(withDefaultBackoff)
		for number := range 4 {
			p.Wake(number)
		}

		time.Sleep(time.Minute)
		isBack.Store(true)
		time.Sleep(8 * time.Minute)

		for _, r := range w.cms.listRequests() {
			if lane.Of(r.key, 4) == 0 && r.at.Sub(began) > 10*time.Second {
				t.Errorf("lane 0 sent a message after %s, want none for ten minutes",
					r.at.Sub(began))
			}
		}

		if n := w.lanes.Control(3).WaitingCount(); n != 0 {
			t.Errorf("lane 3 has %d waiting messages, want none", n)
		}
	})
}

// The CMS is busy now and then for one lane, and refuses everything of a contract whose messages
// wait in the others. Recoveries of the one lane do not make the others ask more often.
func TestOutlook_OtherContractsAreNotTried(t *testing.T) {
	simulateLanes(t, func(t *testing.T, w *world) {
		var asked atomic.Int64
		began := time.Now()
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			switch {
			case d.Message.Contract == "refused":
				asked.Add(1)
				return newAnswer(403)
			case time.Since(began)/(20*time.Second)%2 == 0:
				return newAnswer(503)
			}

			return answerAfter(20*time.Millisecond, 200)(ctx, d)
		})

		w.postToLanes(1, func(m *weir.Message) { m.Contract = "refused" })
		p := w.start(withDefaultBackoff)
		for number := range 4 {
			p.Wake(number)
		}

		time.Sleep(time.Hour)
		before := asked.Load()

		for i := range 100 {
			id := w.post(fmt.Sprint("good", i), "x")
			for p.Wake(id.Lane); w.status(id).Stage != weir.Delivered; {
				time.Sleep(time.Second)
			}
			time.Sleep(20 * time.Second)
		}

		if n := asked.Load() - before; n > 60 {
			t.Errorf("%d requests of the refused messages in half an hour, want 60 at most", n)
		}
	})
}

// A process whose lanes pause for hours asks storage little.
func TestOutlook_CostsLittle(t *testing.T) {
	simulateLanes(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(context.Context, weir.Delivery) weir.Result { return noConnection })
		w.postToLanes(2)
		p := w.start(withDefaultBackoff)
		for number := range 4 {
			p.Wake(number)
		}

		var calls atomic.Int64
		p.faults.Set(func(storagetest.Call) storagetest.Fault { calls.Add(1); return storagetest.Fault{} })

		for hour := range 3 {
			calls.Store(0)
			sent := len(w.cms.listRequests())
			time.Sleep(time.Hour)
			t.Logf("hour %d: %d calls of storage, %d requests to the CMS", hour, calls.Load(),
				len(w.cms.listRequests())-sent)
		}

		if n := calls.Load(); n > 800 {
			t.Errorf("%d calls of storage in the third hour, want 800 at most", n)
		}
	})
}
