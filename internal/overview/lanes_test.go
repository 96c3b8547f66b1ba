package overview_test

import (
	"testing"
	"time"

	"weir/internal/overview"
	"weir/internal/weir"
)

func (w *world) lane(n int) overview.Lane {
	w.t.Helper()
	l, err := w.all.Lane(w.t.Context(), n)
	if err != nil {
		w.t.Fatal(err)
	}
	if sum := l.Counts.Total() + l.Waiting; l.Accepted != sum || l.Scheduled+l.Queued+l.Retrying != l.Waiting {
		w.t.Errorf("the books do not balance: %+v", l)
	}
	return l
}

func TestLanes(t *testing.T) {
	t.Run("Empty", func(t *testing.T) {
		simulate(t, 2, func(t *testing.T, w *world) {
			lanes, err := w.all.Lanes(t.Context())
			if err != nil || len(lanes) != 2 || lanes[1].Number != 1 || lanes[1].Waiting != 0 || !lanes[1].Exact ||
				!lanes[1].OldestAt.IsZero() || lanes[1].DrainEstimate != (overview.DrainEstimate{Known: true}) {
				t.Errorf("%+v, %v", lanes, err)
			}
			if looks := w.asked(func() { w.lane(0) }); looks != 1 {
				t.Errorf("%d queries for a lane at rest", looks)
			}
			for _, n := range []int{-1, 2} {
				if _, err := w.all.Lane(t.Context(), n); weir.KindOf(err) != weir.NotFound {
					t.Errorf("lane %d: %v", n, err)
				}
			}
		})
	})
	t.Run("ByStage", func(t *testing.T) {
		simulate(t, 1, func(t *testing.T, w *world) {
			first := w.post("late/a") // it is tried, the others wait behind it
			w.post("late/a")
			w.post("late/a")
			w.post("late/b")
			w.post("bad")
			for range 20 {
				w.post("ok")
			}
			w.post("later", due(time.Hour))
			w.post("much later", due(1000*time.Hour))
			w.drain(time.Minute)
			l := w.lane(0)
			if l.Scheduled != 2 || l.Retrying != 2 || l.Queued != 2 || l.Counts.Delivered != 20 || l.Counts.Dead != 1 ||
				!l.Exact || l.Held || l.Holder != "one" || l.LastError != "out of order" && l.LastError == "" {
				t.Errorf("%+v", l)
			}
			if _, err := w.store.Cancel(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			w.drain(time.Minute) // and the next of its key is tried
			if l := w.lane(0); l.Retrying != 2 || l.Queued != 1 || l.Counts.Cancelled != 1 {
				t.Errorf("with the next tried: %+v", l)
			}
			w.post("fresh")
			if l := w.lane(0); l.Queued != 2 {
				t.Errorf("with one in the log: %+v", l)
			}
			if looks := w.asked(func() { w.lane(0) }); looks > 5 {
				t.Errorf("%d queries", looks)
			}
		})
	})
	t.Run("Oldest", func(t *testing.T) {
		simulate(t, 1, func(t *testing.T, w *world) {
			since := func(want time.Time) {
				t.Helper()
				if got := w.lane(0).OldestAt; got.Sub(want).Abs() > 2*time.Second {
					t.Errorf("waits since %v, want %v", got, want)
				}
			}
			w.post("scheduled", due(time.Hour))
			since(time.Time{})
			time.Sleep(time.Minute)
			w.post("scheduled too", due(time.Hour))
			w.post("in the log")
			logged := time.Now()
			time.Sleep(time.Minute)
			w.post("late/too") // the next
			since(logged)
			failed := time.Now()
			w.drain(time.Minute)
			since(failed)
			w.post("late/x", due(time.Hour))
			fell := time.Now().Add(time.Hour)
			w.drain(2 * time.Hour) // what was scheduled is delivered, and the late one fails
			since(failed)
			if _, err := w.store.Cancel(t.Context(),
				w.find(overview.Filter{Key: "late/too"}, 1)[0].Message.ID); err != nil {
				t.Fatal(err)
			}
			w.drain(time.Minute)
			since(fell)
		})
	})
	t.Run("OldestOfReplayed", func(t *testing.T) {
		simulate(t, 1, func(t *testing.T, w *world) {
			ids := []weir.ID{w.post("bad/late"), w.post("bad/late", due(time.Second))}
			w.drain(time.Minute)
			time.Sleep(48 * time.Hour)
			w.post("late/a")
			failed := time.Now()
			w.drain(time.Minute)
			if err := w.store.Pause(t.Context(),
				weir.Pause{Key: "bad/late", Reason: "wait", Since: time.Now()}); err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				if _, err := w.store.Replay(t.Context(), id, replay); err != nil {
					t.Fatal(err)
				}
			}
			w.drain(time.Minute)
			if l := w.lane(0); l.Queued != 2 || l.Retrying != 1 || l.Counts.Dead != 0 ||
				l.OldestAt.Sub(failed).Abs() > 2*time.Second {
				t.Errorf("%+v, want since %v", l, failed)
			}
		})
	})
	t.Run("ManyAreCut", func(t *testing.T) {
		simulate(t, 1, func(t *testing.T, w *world) {
			w.many(6000, func(_ int, m *weir.Message) { m.DueAt = time.Now().Add(time.Hour) })
			l := w.lane(0)
			if l.Exact || l.Scheduled != 5000 {
				t.Errorf("%+v", l)
			}
		})
	})
}

func TestLanes_Rates(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		for range 30 {
			w.post("ok")
		}
		w.post("later", due(time.Hour))
		if l := w.lane(0); l.DrainEstimate.Known || l.Rate1.Known {
			t.Errorf("without a rate: %+v", l)
		}
		w.rates[1], w.rates[15] = 0, 10
		if l := w.lane(0); l.DrainEstimate.Known || !l.Rate1.Known || l.Rate15.PerMinute != 10 {
			t.Errorf("without a pace: %+v", l)
		}
		w.rates[pace] = 30
		if l := w.lane(0); l.DrainEstimate != (overview.DrainEstimate{In: time.Minute, Known: true}) {
			t.Errorf("by the pace: %+v", l)
		}
		w.rates[pace] = 1e-300
		if l := w.lane(0); l.DrainEstimate.In < 1000*time.Hour {
			t.Errorf("next to nothing goes: %+v", l)
		}
		w.rates[pace] = 10
		until := time.Now().Add(time.Hour).UTC()
		if err := w.store.Pause(t.Context(),
			weir.Pause{Reason: "release", Since: time.Now(), Until: until}); err != nil {
			t.Fatal(err)
		}
		if l := w.lane(0); l.DrainEstimate.Known || l.PauseCause.By != overview.ByOperator ||
			l.PauseCause.Reason != "release" || !l.PauseCause.Until.Equal(until) || len(l.Pauses) != 1 {
			t.Errorf("paused: %+v", l)
		}
	})
}

func TestSumLanes(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *world) {
		w.many(200, func(i int, m *weir.Message) {
			if i%7 == 0 {
				m.DueAt = time.Now().Add(time.Hour)
			}
		})
		w.post("bad")
		w.drain(time.Minute)
		lanes, err := w.all.Lanes(t.Context())
		sum := overview.SumLanes(lanes)
		if err != nil || sum.Accepted != 201 || sum.Counts.Delivered != 171 || sum.Counts.Dead != 1 ||
			sum.Waiting != 29 {
			t.Errorf("%+v, %v", sum, err)
		}
	})
}
