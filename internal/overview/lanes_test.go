package overview_test

import (
	"testing"
	"time"

	"weir/internal/overview"
	"weir/internal/weir"
)

func (w *world) readLane(n int) overview.Lane {
	w.t.Helper()
	l, err := w.all.Lane(w.t.Context(), n)
	if err != nil {
		w.t.Fatal(err)
	}

	if sum := l.Counts.Total() + l.Waiting; l.Accepted != sum ||
		l.Scheduled+l.Queued+l.Retrying != l.Waiting {
		w.t.Errorf("got %+v, want Accepted %d, and Scheduled + Queued + Retrying = %d", l,
			sum, l.Waiting)
	}

	return l
}

func TestLanes_Empty(t *testing.T) {
	simulate(t, 2, func(t *testing.T, w *world) {
		lanes, err := w.all.Lanes(t.Context())
		if err != nil || len(lanes) != 2 || lanes[1].Number != 1 || lanes[1].Waiting != 0 ||
			!lanes[1].Exact ||
			!lanes[1].OldestAt.IsZero() ||
			lanes[1].DrainEstimate != (overview.DrainEstimate{Known: true}) {
			t.Errorf("got %+v, %v, want two empty lanes", lanes, err)
		}

		if queries := w.countRequests(func() { w.readLane(0) }); queries != 1 {
			t.Errorf("got %d queries for an empty lane, want 1", queries)
		}

		for _, n := range []int{-1, 2} {
			if _, err := w.all.Lane(t.Context(), n); weir.KindOf(err) != weir.NotFound {
				t.Errorf("lane %d: got %v, want NotFound", n, err)
			}
		}
	})
}

func TestLanes_ByStage(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		// tried by the drain below; the next two messages wait for it
		first := w.appendMessage("late/a")
		w.appendMessage("late/a")
		w.appendMessage("late/a")
		w.appendMessage("late/b")
		w.appendMessage("bad")
		for range 20 {
			w.appendMessage("ok")
		}

		w.appendMessage("later", withDelay(time.Hour))
		w.appendMessage("much later", withDelay(1000*time.Hour))
		w.drainFor(time.Minute)
		l := w.readLane(0)
		if l.Scheduled != 2 || l.Retrying != 2 || l.Queued != 2 || l.Counts.Delivered != 20 ||
			l.Counts.Dead != 1 ||
			!l.Exact || l.Held || l.Holder != "one" || l.LastError == "" {
			t.Errorf("got %+v, want 2 scheduled, 2 retrying, 2 queued, 20 delivered and 1 dead, and no holder", l)
		}

		if _, err := w.store.Requests().Cancel(t.Context(), first); err != nil {
			t.Fatal(err)
		}

		w.drainFor(time.Minute) // tries the next message of late/a
		if l := w.readLane(0); l.Retrying != 2 || l.Queued != 1 || l.Counts.Cancelled != 1 {
			t.Errorf("after the attempt of the next message: got %+v, want Retrying 2, Queued 1 and Cancelled 1", l)
		}

		w.appendMessage("fresh")
		if l := w.readLane(0); l.Queued != 2 {
			t.Errorf("with a message in the log: got %+v, want Queued 2", l)
		}

		if queries := w.countRequests(func() { w.readLane(0) }); queries > 5 {
			t.Errorf("got %d queries, want at most 5", queries)
		}
	})
}

func TestLanes_Oldest(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		expectOldest := func(want time.Time) {
			t.Helper()
			if got := w.readLane(0).OldestAt; got.Sub(want).Abs() > 2*time.Second {
				t.Errorf("got OldestAt %v, want %v", got, want)
			}
		}

		w.appendMessage("scheduled", withDelay(time.Hour))
		expectOldest(time.Time{})
		time.Sleep(time.Minute)
		w.appendMessage("scheduled too", withDelay(time.Hour))
		w.appendMessage("in the log")
		loggedAt := time.Now()
		time.Sleep(time.Minute)
		w.appendMessage("late/too") // the drain below fails to deliver this message
		expectOldest(loggedAt)
		lateAt := time.Now()
		w.drainFor(time.Minute)
		expectOldest(lateAt)
		w.appendMessage("late/x", withDelay(time.Hour))
		dueAt := time.Now().Add(time.Hour)
		w.drainFor(2 * time.Hour) // the CMS accepts the scheduled messages, except late/x
		expectOldest(lateAt)

		if _, err := w.store.Requests().Cancel(t.Context(),
			w.searchAll(overview.Filter{Key: "late/too"}, 1)[0].Message.ID); err != nil {
			t.Fatal(err)
		}

		w.drainFor(time.Minute)
		expectOldest(dueAt)
	})
}

func TestLanes_OldestOfReplayed(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		ids := []weir.ID{w.appendMessage("bad/late"),
			w.appendMessage("bad/late", withDelay(time.Second))}
		w.drainFor(time.Minute)
		time.Sleep(48 * time.Hour)
		w.appendMessage("late/a")
		lateAt := time.Now()
		w.drainFor(time.Minute)

		if err := w.store.Pauses().Pause(t.Context(),
			weir.Pause{Key: "bad/late", Reason: "wait", Since: time.Now()}); err != nil {
			t.Fatal(err)
		}

		for _, id := range ids {
			if _, err := w.store.Requests().Replay(t.Context(), id, replay); err != nil {
				t.Fatal(err)
			}
		}

		w.drainFor(time.Minute)

		if l := w.readLane(0); l.Queued != 2 || l.Retrying != 1 || l.Counts.Dead != 0 ||
			l.OldestAt.Sub(lateAt).Abs() > 2*time.Second {
			t.Errorf("got %+v, want Queued 2, Retrying 1, Dead 0 and OldestAt %v", l, lateAt)
		}
	})
}

func TestLanes_CountIsBounded(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.appendMany(6000, func(_ int, m *weir.Message) { m.DueAt = time.Now().Add(time.Hour) })
		l := w.readLane(0)
		if l.Exact || l.Scheduled != 5000 {
			t.Errorf("got %+v, want Exact false and Scheduled 5000", l)
		}
	})
}

func TestLanes_Rates(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		for range 30 {
			w.appendMessage("ok")
		}

		w.appendMessage("later", withDelay(time.Hour))
		if l := w.readLane(0); l.DrainEstimate.Known || l.Rate1.Known {
			t.Errorf("without a rate: got %+v, want no known estimate and rate", l)
		}

		w.rates[1], w.rates[15] = 0, 10
		if l := w.readLane(0); l.DrainEstimate.Known || !l.Rate1.Known || l.Rate15.PerMinute != 10 {
			t.Errorf("without a pace: got %+v, want no known estimate, and the rates 0 and 10", l)
		}

		w.rates[pace] = 30
		if l := w.readLane(0); l.DrainEstimate !=
			(overview.DrainEstimate{In: time.Minute, Known: true}) {
			t.Errorf("by the pace: got %+v, want a minute to empty", l)
		}

		w.rates[pace] = 1e-300
		if l := w.readLane(0); l.DrainEstimate.In < 1000*time.Hour {
			t.Errorf("at a pace near 0: got %+v, want at least 1000 hours to empty", l)
		}

		w.rates[pace] = 10
		until := time.Now().Add(time.Hour).UTC()
		if err := w.store.Pauses().Pause(t.Context(),
			weir.Pause{Reason: "release", Since: time.Now(), Until: until}); err != nil {
			t.Fatal(err)
		}

		if l := w.readLane(0); l.DrainEstimate.Known || l.PauseCause.By != overview.ByOperator ||
			l.PauseCause.Reason != "release" || !l.PauseCause.Until.Equal(until) ||
			len(l.Pauses) != 1 {
			t.Errorf("paused: got %+v, want Known false, By %v, Reason release, Until %v and 1 Pause", l,
				overview.ByOperator, until)
		}
	})
}

func TestSumLanes(t *testing.T) {
	simulate(t, 5, func(t *testing.T, w *world) {
		w.appendMany(200, func(i int, m *weir.Message) {
			if i%7 == 0 {
				m.DueAt = time.Now().Add(time.Hour)
			}
		})

		w.appendMessage("bad")
		w.drainFor(time.Minute)
		lanes, err := w.all.Lanes(t.Context())
		sum := overview.SumLanes(lanes)
		if err != nil || sum.Accepted != 201 || sum.Counts.Delivered != 171 ||
			sum.Counts.Dead != 1 ||
			sum.Waiting != 29 {
			t.Errorf("got %+v, %v, want Accepted 201, Delivered 171, Dead 1, Waiting 29 and no error", sum, err)
		}
	})
}

// If the CMS refuses one key, operators must see this key and not an outage. If it refuses many, it
// may be an outage.
func TestLanes_RefusedKeys(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		if l := w.readLane(0); l.Refused != (overview.RefusedKeys{}) {
			t.Errorf("before: got %+v, want no refused key", l.Refused)
		}

		w.appendMessage("refused/a")
		w.appendMessage("refused/a")
		w.drainFor(10 * time.Second)
		l := w.readLane(0)
		if want := (overview.RefusedKeys{Count: 1, First: "refused/a", Complete: true}); l.Refused != want ||
			!l.Refused.AreFew() {
			t.Errorf("got %+v, want %+v, which are few", l.Refused, want)
		}

		if l.PauseCause.By != overview.ByCMS || !l.PauseCause.IsRefused {
			t.Errorf("got the pause %+v, want one by the CMS for refused messages", l.PauseCause)
		}

		w.appendMessage("refused/b")
		w.appendMessage("refused/c")
		w.drainFor(10 * time.Second)
		if l := w.readLane(0); l.Refused.Count != 3 || l.Refused.AreFew() {
			t.Errorf("got %+v, want 3 refused keys, which can be all", l.Refused)
		}

		w.appendMessage("ok")
		w.drainFor(time.Second)
		if l := w.readLane(0); l.LastDeliveredAt.IsZero() || l.Counts.Delivered != 1 {
			t.Errorf("after a delivery: got %+v, want its time", l)
		}
	})
}

// An estimate from the pace of earlier minutes is untrue while nothing moves.
func TestLanes_NoEstimateWhileNothingMoves(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.rates[pace] = 60
		w.appendMessage("a")
		w.appendMessage("b")
		time.Sleep(5 * time.Second)
		if l := w.readLane(0); !l.DrainEstimate.Known {
			t.Errorf("after 5s: got %+v, want an estimate", l)
		}

		time.Sleep(6 * time.Second)

		if l := w.readLane(0); l.DrainEstimate.Known {
			t.Errorf("after 11s without an outcome: got the estimate %s, want none",
				l.DrainEstimate.In)
		}

		w.rates[pace] = 6 // a slow CMS, which needs ten seconds for a message
		if l := w.readLane(0); !l.DrainEstimate.Known {
			t.Errorf("with a slow CMS: got %+v, want an estimate", l)
		}
	})
}
