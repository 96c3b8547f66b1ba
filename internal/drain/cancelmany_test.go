package drain_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/bulk"
	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// cancelAll cancels all messages that a filter selects, by calls of CancelWaiting that read at most
// limit messages each.
func (w *world) cancelAll(s *lane.Store, f bulk.Selection, limit int) bulk.Counts {
	w.t.Helper()
	var sum bulk.Counts
	for at, done := (bulk.Position{}), false; !done; {
		var part bulk.Counts
		var err error
		if part, at, done, err = (bulk.Changer{Store: s}).CancelWaiting(w.t.Context(), f, at, limit,
			false); err != nil {
			w.t.Fatalf("cancel: %v", err)
		}

		if !at.IsValid() {
			w.t.Fatalf("the walk reached %+v, want a valid place", at)
		}

		sum.Selected += part.Selected
		sum.Cancelled += part.Cancelled
		sum.Asked += part.Asked
		sum.TooLate += part.TooLate
	}

	return sum
}

// waitEverywhere posts n unwanted and n wanted messages for each of three places: the log, a
// blocked key's queue, and the scheduled messages. The keys of unwanted messages begin with new/,
// and the keys of wanted messages with old/.
func (w *world) waitEverywhere(p *process, n int) (unwanted, wanted []weir.ID) {
	w.t.Helper()
	w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
		status := 200
		if d.Message.Key == "new/0" || d.Message.Key == "old/0" {
			status = 500
		}
		return answerAfter(time.Millisecond, status)(ctx, d)
	})

	for i := range n {
		for _, prefix := range []string{"new/", "old/"} {
			id := w.post(prefix+"0", fmt.Sprint("held ", i))
			due := w.post(prefix+"later", fmt.Sprint("due ", i),
				withDueTime(time.Now().Add(time.Hour)))

			if prefix == "new/" {
				unwanted = append(unwanted, id, due)
			} else {
				wanted = append(wanted, id, due)
			}
		}
	}

	p.Wake(0)
	time.Sleep(2 * time.Second)

	// messages that are appended after "busy" wait in the log
	w.cms.setAnswer(answerAfter(time.Minute, 200))
	w.post("busy", "1")
	p.Wake(0)
	time.Sleep(5 * time.Second)

	for i := range n {
		// The holder may send the first of these messages before it reads requests again. So the
		// first message is a wanted one.
		wanted = append(wanted, w.post("old/log", fmt.Sprint("log ", i)))
		unwanted = append(unwanted, w.post("new/log", fmt.Sprint("log ", i)))
	}

	return unwanted, wanted
}

func TestStore_CancelMany(t *testing.T) {
	faults := map[string]storagetest.FaultKind{"AnswerLost": storagetest.FailAfter,
		"NotDone": storagetest.FailBefore}
	for name, kind := range faults {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				faults := storagetest.NewFaults()
				broken := *w.store
				broken.Table = faults.Table(w.account.Table())
				var ids []weir.ID
				for i := range 40 {
					ids = append(ids,
						w.post("a", fmt.Sprint(i), withDueTime(time.Now().Add(time.Hour))))
				}

				faults.Once(func(c storagetest.Call) bool {
					return c.Op == "Transact" &&
						len(c.Ops) > 10
				}, storagetest.Fault{Kind: kind})

				if got := w.cancelAll(&broken, bulk.Selection{Key: "a"}, 1000); got.Cancelled !=
					40 ||
					got.TooLate != 0 {
					t.Errorf("counted %+v, want 40 cancelled", got)
				}

				p := w.start()
				p.Wake(0)
				w.waitUntilEmpty(time.Minute)
				w.expectCounts(lane.Counts{Cancelled: 40}, ids...)
			})
		})
	}
}

func TestStore_CancelMany_InEachPlaceOfWaiting(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{10 * time.Minute} })
		const n = 120
		unwanted, wanted := w.waitEverywhere(p, n)
		counted, _, _, err := bulk.Changer{Store: w.store}.CancelWaiting(
			t.Context(),
			bulk.Selection{KeyPrefix: "new/"},
			bulk.Position{},
			1_000_000,
			true,
		)
		if err != nil || counted.Selected != 3*n || counted.Asked+counted.Cancelled != 0 {
			t.Errorf("a dry run counted %+v, %v; want %d selected", counted, err, 3*n)
		}

		got := w.cancelAll(w.store, bulk.Selection{KeyPrefix: "new/"}, 50)
		if got.Selected != 3*n || got.Cancelled != n || got.Asked != 2*n || got.TooLate != 0 {
			t.Errorf("counted %+v, want %d selected, %d of them cancelled at once", got, 3*n, n)
		}

		w.cms.setAnswer(answerAfter(time.Millisecond, 200))
		p.Wake(0)
		w.waitUntilEmpty(3 * time.Hour)
		w.expectCounts(
			lane.Counts{Delivered: 1 + 3*n, Cancelled: 3 * n},
			append(append(unwanted, wanted...), w.firstOfKey("busy"))...)

		for _, id := range unwanted {
			if st := w.status(id); st.Stage != weir.Cancelled {
				t.Fatalf("%s is %s, want cancelled", st.Message.Key, st.Stage)
			}
		}

		if rows := append(w.rowKeys("w_"), append(w.rowKeys("r_"), w.rowKeys("s_")...)...); len(rows) > 0 {
			t.Errorf("rows are left: %v, want 0 rows", rows)
		}
	})
}

func TestStore_CancelMany_ConditionsMustAllHold(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		w.cms.setAnswer(answerAfter(time.Minute, 200))
		w.post("busy", "0")
		p.Wake(0)
		synctest.Wait()
		from := time.Now().Add(time.Second)
		w.post("a", "before")
		time.Sleep(2 * time.Second)
		w.post("a", "other contract", func(m *weir.Message) { m.Contract = "delete" })
		w.post("a", "scheduled", withDueTime(time.Now().Add(time.Hour)))
		w.post("b", "other key")
		want := w.post("a", "meant")
		time.Sleep(time.Second)
		to := time.Now()
		w.post("a", "after")
		zero := 0
		got := w.cancelAll(
			w.store,
			bulk.Selection{Key: "a", Contract: "article", Stage: weir.Queued, Lane: &zero,
				From: from, To: to},
			1000,
		)
		if got.Selected != 1 || got.Asked != 1 {
			t.Errorf("counted %+v, want one selected and asked for", got)
		}

		w.cms.setAnswer(answerAfter(time.Millisecond, 200))
		p.Wake(0)
		w.waitUntilEmpty(2 * time.Hour)

		if st := w.status(want); st.Stage != weir.Cancelled ||
			w.control().Tail.Counts != (lane.Counts{Delivered: 6, Cancelled: 1}) {
			t.Errorf("it is %s, the lane counts %+v, want cancelled, and 6 delivered and 1 cancelled",
				st.Stage, w.control().Tail.Counts)
		}
	})
}

func TestStore_CancelMany_ThousandsDoNotStopTheLane(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start(slowStorage,
			func(c *drain.Config) { c.Backoff.Steps = []time.Duration{time.Hour} })
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			return answerAfter(time.Millisecond, map[bool]int{true: 500, false: 200}[d.Message.Key == "bad"])(ctx, d)
		})
		const n = 3000
		for i := range n {
			w.post("bad", fmt.Sprint(i))
		}

		p.Wake(0)
		time.Sleep(5 * time.Minute)
		w.cancelAll(w.store, bulk.Selection{Key: "bad"}, 10_000)
		began := time.Now()
		w.post("good", "1")
		p.Wake(0)
		c := w.waitUntilEmpty(5 * time.Minute)
		if took := time.Since(began); took > 20*time.Second || c.Tail.Counts.Cancelled != n {
			t.Errorf("%d of %d were cancelled in %s, want all within 20 s",
				c.Tail.Counts.Cancelled, n, took)
		}
	})
}

// firstOfKey returns the id of a key's first message in the log.
func (w *world) firstOfKey(key string) weir.ID {
	w.t.Helper()
	entries, err := w.store.ReadLog(w.t.Context(), 0, 1, 1000)
	if err != nil {
		w.t.Fatal(err)
	}

	for _, e := range entries {
		if e.Message.Key == key {
			return e.Message.ID
		}
	}

	w.t.Fatalf("got no message of the key %q, want one", key)

	return weir.ID{}
}
