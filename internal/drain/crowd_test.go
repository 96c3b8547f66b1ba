//go:build !race || long

package drain_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/drain"
	"weir/internal/storage"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// livelyTable has latencies like those of a real account: they are log-normal around the median.
// One request in five hundred is refused, as if storage were busy. A refused read is repeated after
// 200 ms; a refused write returns an error.
type livelyTable struct {
	storage.Table
	median time.Duration
	mu     *sync.Mutex
	rand   *rand.Rand
}

func withLivelyStorage(median time.Duration) func(*drain.Config) {
	return func(c *drain.Config) {
		store := *c.Store
		store.Table = livelyTable{store.Table, median, &sync.Mutex{}, rand.New(rand.NewPCG(1, 2))}
		c.Store = &store
	}
}

// crowdedTable writes as a partition does that takes a limited number of rows a second: one
// transaction at a time, and each row takes perRow.
type crowdedTable struct {
	storage.Table
	perRow time.Duration
	turn   chan struct{}
}

func withCrowdedStorage(perRow time.Duration) func(*drain.Config) {
	return func(c *drain.Config) {
		store := *c.Store
		store.Table = crowdedTable{store.Table, perRow, make(chan struct{}, 1)}
		c.Store = &store
	}
}

func (s crowdedTable) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	time.Sleep(time.Duration(len(ops)) * s.perRow)
	return s.Table.Transact(ctx, partition, ops)
}

// takeTime lets the time of one request pass, and reports whether storage refuses it.
func (s livelyTable) takeTime() (busy bool) {
	s.mu.Lock()
	d, busy := time.Duration(float64(s.median)*math.Exp(0.45*s.rand.NormFloat64())),
		s.rand.Float64() < 0.002
	s.mu.Unlock()
	time.Sleep(d)
	return busy
}

func (s livelyTable) takeReadTime() {
	for s.takeTime() {
		time.Sleep(200 * time.Millisecond) // as the Azure SDK does
	}
}

func (s livelyTable) Get(ctx context.Context, partition, key string) (storage.Row, error) {
	s.takeReadTime()
	return s.Table.Get(ctx, partition, key)
}

func (s livelyTable) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	s.takeReadTime()
	return s.Table.Range(ctx, q)
}

func (s livelyTable) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	if s.takeTime() {
		return nil, &storage.Error{Op: "transact", Kind: storage.Throttled, Index: -1}
	}
	return s.Table.Transact(ctx, partition, ops)
}

// postCrowd appends n messages, up to 100 at the same time. Each message has its own key, but the
// function "change" can set another key.
func (w *world) postCrowd(n int, change func(i int, m *weir.Message)) {
	var all errgroup.Group
	all.SetLimit(100)

	for i := range n {
		all.Go(func() error {
			m := weir.Message{
				Contract:    "article",
				Key:         fmt.Sprint("k", i),
				ContentType: "application/xml",
				Body:        fmt.Append(nil, "due ", i),
			}

			change(i, &m)
			_, err := lanetest.AppendAndWake(w.t.Context(), w.lanes.Appender, m, "")
			return err
		})
	}

	if err := all.Wait(); err != nil {
		w.t.Fatal(err)
	}
}

// postSlowly appends n messages without a due time, one every 100 ms, and offers them to the
// Drainer.
func (w *world) postSlowly(n int, p *process) {
	w.lanes.Appender.OnFiled, w.lanes.Appender.OnWake = p.OfferAppended, p.WakeOffered
	for i := range n {
		w.post(fmt.Sprint("plain", i%10), fmt.Sprint("plain ", i))
		time.Sleep(100 * time.Millisecond)
	}
}

// measureLags returns the time from acceptance to attempt for each message of postSlowly.
func (w *world) measureLags() (lags []time.Duration) {
	for _, s := range w.cms.listRequests() {
		if strings.HasPrefix(s.key, "plain") {
			id, err := weir.ParseID(s.id)
			if err != nil {
				w.t.Fatal(err)
			}
			lags = append(lags, s.at.Sub(w.status(id).Message.AcceptedAt))
		}
	}

	return lags
}

// percentile returns a percentile of the durations; a share of 0.95 gives the 95th percentile.
func percentile(all []time.Duration, share float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

// A lane sends up to 20 messages per second at their due times, even if storage has the latencies
// of a real account.
func TestDrainer_DueAtTheirMomentsOnLivelyStorage(t *testing.T) {
	for _, perSecond := range []int{1, 10, 20} {
		t.Run(fmt.Sprint(perSecond), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.cms.setAnswer(answerAfter(time.Millisecond, 200))
				const seconds = 50
				draw := rand.New(rand.NewPCG(3, uint64(perSecond)))
				from, moments := time.Now().Add(10*time.Second), map[string]time.Time{}
				for i := range perSecond * seconds {
					body := fmt.Sprint(i)
					moments[body] =
						from.Add(time.Duration(draw.Float64() * float64(seconds*time.Second))).
							Truncate(time.Microsecond)
					w.post(body, body, withDueTime(moments[body]))
				}

				w.start(withLivelyStorage(10 * time.Millisecond)).Wake(0)
				w.waitUntilEmpty(5 * time.Minute)
				var all []time.Duration
				for _, late := range w.measureDelays(moments) {
					all = append(all, late)
				}

				if len(all) != len(moments) {
					t.Fatalf("%d were sent, want %d", len(all), len(moments))
				}

				t.Logf("%d a second: p50 %s, p95 %s, p99 %s, max %s late",
					perSecond, percentile(all, 0.5), percentile(all, 0.95), percentile(all, 0.99),
					slices.Max(all))
				if p99 := percentile(all, 0.99); p99 > 20*time.Millisecond {
					t.Errorf("p99 is %s late, want 20ms at most", p99)
				}
			})
		})
	}
}

// If many messages become due at the same time, the first is sent at that time. The others are sent
// as fast as the CMS takes them. A message without a due time still waits for a second at most. The
// partition takes a thousand rows a second, and the lane writes seven for each due message.
func TestDrainer_ManyDueAtOneMoment(t *testing.T) {
	for _, n := range []int{200, 1000, 2000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				const work = 20 * time.Millisecond
				w.cms.setAnswer(answerAfter(work, 200))
				at := time.Now().Add(time.Minute)
				w.postCrowd(n, func(_ int, m *weir.Message) { m.DueAt = at })
				p := w.start(withLivelyStorage(12*time.Millisecond),
					withCrowdedStorage(time.Millisecond))
				time.Sleep(time.Until(at.Add(-5 * time.Second)))
				p.Wake(0)
				time.Sleep(4 * time.Second)
				w.postSlowly(100, p)
				w.waitUntilEmpty(5 * time.Minute)
				w.checkNoOverlap()
				var first, last time.Time
				sent := 0
				crowd := 0
				for _, s := range w.cms.listRequests() {
					if strings.HasPrefix(s.body, "due") {
						if crowd++; crowd == 1 {
							first = s.at
						}
					}

					if crowd > 0 && last.IsZero() {
						sent++
					}

					if crowd == n && last.IsZero() {
						last = s.end
					}
				}

				lag := slices.Max(w.measureLags())
				pace := float64(sent) * float64(work) / float64(last.Sub(first))
				t.Logf("%d due: the first %s late, %.3f of the CMS's pace, plain ones up to %s behind",
					n, first.Sub(at), pace, lag)

				if late := first.Sub(at); late < 0 || late > 20*time.Millisecond+work {
					t.Errorf("the first was sent %s after the moment, want 0 to %v", late,
						20*time.Millisecond+work)
				}

				if pace < 0.95 {
					t.Errorf("the CMS was given %.3f of what it could take, want at least 0.95",
						pace)
				}

				if lag > time.Second {
					t.Errorf("a plain message waited %s, want 1s at most", lag)
				}
			})
		})
	}
}

// Moves do not run ahead of the CMS: of many messages that are due at the same time, only some have
// their place in the queues of their keys. The others can still be cancelled.
func TestDrainer_MovesKeepPaceWithTheCMS(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		const n, most = 1000, 260 // 120 that wait, 64 without a commit, and moves under way
		at, moved, sent := time.Now().Add(time.Minute), 0, 0
		w.postCrowd(n, func(_ int, m *weir.Message) { m.DueAt = at })
		cms := senderFunc(func(ctx context.Context, d weir.Delivery) weir.Result {
			if sent++; sent%25 == 1 {
				moved = max(moved, len(w.rowKeys("r_")))
			}
			return answerAfter(20*time.Millisecond, 200)(ctx, d)
		})

		w.start(withLivelyStorage(12*time.Millisecond),
			func(c *drain.Config) { c.Sender = cms }).Wake(0)
		w.waitUntilEmpty(5 * time.Minute)
		if sent != n || moved > most {
			t.Errorf("%d were sent, and up to %d had been moved; want %d, and %d at most", sent, moved, n,
				most)
		}
	})
}

// Due messages that cannot be sent do not hold back those of other keys, even if so many of them
// were moved that moves would wait.
func TestDrainer_PausedDueMessagesHoldBackNoMoves(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		const paused, others = 200, 50
		at := time.Now().Add(time.Minute)
		w.pause("paused", at.Add(time.Hour))
		w.postCrowd(paused, func(_ int, m *weir.Message) { m.Key, m.DueAt = "paused", at })
		w.postCrowd(others, func(_ int, m *weir.Message) { m.DueAt = at.Add(time.Microsecond) })
		p := w.start(withLivelyStorage(12 * time.Millisecond))
		time.Sleep(time.Until(at.Add(-5 * time.Second)))
		p.Wake(0)
		w.postSlowly(150, p) // the lane has other messages to send all the time

		sent, last := 0, time.Time{}
		for _, r := range w.cms.listRequests() {
			if r.key == "paused" {
				t.Fatalf("a message of the paused key was sent at %s", r.at)
			}
			if strings.HasPrefix(r.body, "due") {
				sent, last = sent+1, r.at
			}
		}

		if late := last.Sub(at); sent != others || late > 5*time.Second {
			t.Errorf("%d were sent, the last %s late; want %d, 5s late at most", sent, late, others)
		}
	})
}

// Messages that became due while no process ran are sent as fast as the CMS takes them.
func TestDrainer_ManyOverdue(t *testing.T) {
	for name, apart := range map[string]time.Duration{"AtOneMoment": 0,
		"EachAtItsOwn": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				const n = 1000
				at := time.Now().Add(time.Minute)
				w.postCrowd(n,
					func(i int, m *weir.Message) { m.DueAt = at.Add(time.Duration(i) * apart) })

				for i := range 300 {
					time.Sleep(6 * time.Second)
					w.post(fmt.Sprint("between", i), "")
				}

				time.Sleep(time.Hour)
				w.post("other", "urgent")
				p := w.start(withLivelyStorage(12 * time.Millisecond))
				began := time.Now()
				p.Wake(0)
				w.waitUntilEmpty(10 * time.Minute)
				log := w.cms.listRequests()
				if first := log[0].at.Sub(began); first > time.Second {
					t.Errorf("the first was sent %s after the lane was looked at, want at most 1s",
						first)
				}

				most := time.Duration(len(log)) * 20 * time.Millisecond * 100 / 95
				if took := log[len(log)-1].end.Sub(log[0].at); took > most {
					t.Errorf("%d were sent in %s, want %s at most", len(log), took, most)
				}
			})
		})
	}
}

// The lane keeps up with 300 due messages each second. One transaction for each message would take
// too long.
func TestDrainer_ManyDueEachSecond(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(time.Millisecond, 200))
		from := time.Now().Add(10 * time.Second)
		w.postCrowd(3000, func(i int, m *weir.Message) {
			m.Key = fmt.Sprint("schedule ", i%300)
			m.DueAt = from.Add(time.Duration(i/300) * time.Second)
		})

		p := w.start(withLivelyStorage(8 * time.Millisecond))
		p.Wake(0)
		time.Sleep(8 * time.Second)
		w.postSlowly(120, p)
		w.waitUntilEmpty(time.Minute)

		for _, s := range w.cms.listRequests() {
			id, err := weir.ParseID(s.id)
			if err != nil {
				t.Fatal(err)
			}

			if due := w.status(id).Message.DueAt; !due.IsZero() && s.at.Sub(due) > time.Second {
				t.Fatalf("%s was sent %s after its due time, want at most 1s", s.body,
					s.at.Sub(due))
			}
		}

		if lag := slices.Max(w.measureLags()); lag > time.Second {
			t.Errorf("a plain message waited %s, want 1s at most", lag)
		}
	})
}

type senderFunc func(context.Context, weir.Delivery) weir.Result

func (f senderFunc) Send(ctx context.Context, d weir.Delivery) weir.Result { return f(ctx, d) }

// If many messages become due together, not all of them are in memory at the same time.
func TestDrainer_MemoryOfDueMessages(t *testing.T) {
	simulateAlone(t, func(t *testing.T, w *world) {
		const n, size, most = 400, 200 << 10, 24 << 20
		at := time.Now().Add(time.Minute)
		body := []byte(strings.Repeat("x", size))
		w.postCrowd(n, func(_ int, m *weir.Message) { m.DueAt, m.Body = at, body })
		alive := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}

		before, grown, sent := alive(), int64(0), 0
		cms := senderFunc(func(ctx context.Context, d weir.Delivery) weir.Result {
			if len(d.Message.Body) != size {
				t.Errorf("a body of %d bytes was sent, want %v", len(d.Message.Body), size)
			}

			if sent++; sent%50 == 1 {
				grown = max(grown, alive()-before)
			}
			return answerAfter(20*time.Millisecond, 200)(ctx, d)
		})

		w.start(withLivelyStorage(12*time.Millisecond), func(c *drain.Config) { c.Sender = cms }).Wake(0)
		w.waitUntilEmpty(5 * time.Minute)
		t.Logf("%d of %d KiB: %d MiB", n, size>>10, grown>>20)
		if grown > most {
			t.Errorf("%d MiB were in memory, want %d at most", grown>>20, most>>20)
		}
	})
}

// A message that becomes due waits only for the request that is under way. Messages that wait in
// the log are sent later.
func TestDrainer_DueMessageGoesNext(t *testing.T) {
	for sent := range 4 {
		t.Run(fmt.Sprint(sent), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				const request = 50 * time.Millisecond
				w.cms.setAnswer(answerAfter(request, 200))
				p := w.start(withLivelyStorage(time.Millisecond))
				w.lanes.Appender.OnFiled, w.lanes.Appender.OnWake = p.OfferAppended, p.WakeOffered
				moment := time.Now().Add(10 * time.Second)
				w.post("due", "due", withDueTime(moment))
				time.Sleep(time.Until(moment.Add(-time.Duration(sent)*request - request/2)))
				for i := range sent + 4 {
					w.post(fmt.Sprint("plain", i), fmt.Sprint("plain ", i))
				}

				w.waitUntilEmpty(time.Minute)
				late := w.measureDelays(map[string]time.Time{"due": moment})["due"]
				if late > request+10*time.Millisecond {
					t.Errorf("sent %s after its moment; want at most one request later (%s)",
						late, request)
				}
			})
		})
	}
}

// The holder leaves in the middle of a crowd of due messages: some of them have no position yet,
// and messages of other keys that were accepted later were sent. The next holder must not put a due
// message behind messages of its key that were accepted later and were not sent.
func TestDrainer_HandOverInACrowdOfDueMessages(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(20*time.Millisecond, 200))
		at := time.Now().Add(2 * time.Second)
		w.postCrowd(300, func(i int, m *weir.Message) { m.DueAt = at })
		w.post("late", "due", withDueTime(at.Add(time.Millisecond)))
		p := w.start()
		p.Wake(0)
		w.lanes.Appender.OnFiled, w.lanes.Appender.OnWake = p.OfferAppended, p.WakeOffered

		time.Sleep(2100 * time.Millisecond)
		w.post("late", "newer")
		for i := range 20 {
			w.post(fmt.Sprint("plain", i), "plain")
		}
		time.Sleep(1500 * time.Millisecond)
		if tail := w.control().Tail; len(w.listDelivered("plain0")) == 0 ||
			len(w.listDelivered("late")) != 0 {
			t.Fatalf("delivered %d, want a plain message, and none of the key",
				tail.Counts.Delivered)
		}

		p.close(t)
		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("late"); !slices.Equal(got, []string{"due", "newer"}) {
			t.Errorf("delivered %v, want [due newer]", got)
		}
	})
}
