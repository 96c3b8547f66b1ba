package drain_test

import (
	"slices"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func TestDrainer_ReplayOrder_OfOneThatWasScheduled(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.answerByBody("due")
		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{20 * time.Second} })
		scheduled := w.post("a", "due", withDueTime(time.Now().Add(10*time.Second)))
		before := w.post("a", "before")
		p.Wake(0)

		// "before" is delivered, "due" is dead, and the key has no later message
		time.Sleep(15 * time.Second)
		m.setStatus("behind", 500)
		behind := w.post("a", "behind")
		p.Wake(0)
		time.Sleep(time.Second)
		for _, body := range []string{"due", "behind"} {
			m.setStatus(body, 200)
		}

		w.replay(scheduled, lane.ReplayOptions{})
		p.Wake(0)
		w.waitUntilIdle()

		if got := w.sentBodies(); !slices.Equal(got,
			[]string{"before", "due", "behind", "due", "behind"}) {
			t.Errorf("sent %v, want [before due behind due behind]", got)
		}

		w.expectCounts(lane.Counts{Delivered: 3}, scheduled, before, behind)
	})
}

func TestDrainer_ReplayOrder_RefusedAfterAScheduledOneWasDelivered(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.answerByBody("log")
		p := w.start()
		scheduled := w.post("a", "due", withDueTime(time.Now().Add(10*time.Second)))
		log := w.post("a", "log") // appended later than "due", but earlier in the key's order
		p.Wake(0)
		w.waitUntilIdle()
		w.expectReplayRefused(log, scheduled.String())
	})
}

func TestDrainer_ReplayOrder_ForcedReplayDoesNotHideLaterDelivery(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.answerByBody("1", "2")
		p := w.start()
		first, second, third := w.post("a", "1"), w.post("a", "2"), w.post("a", "3")
		p.Wake(0)
		w.waitUntilIdle()
		m.setStatus("1", 200)
		m.setStatus("2", 200)
		w.replay(first, lane.ReplayOptions{Force: true})
		p.Wake(0)
		w.waitUntilIdle()
		w.expectReplayRefused(second, third.String())
		w.expectCounts(lane.Counts{Delivered: 2, Dead: 1}, first, second, third)
	})
}

func TestDrainer_ReplayOrder_IgnoresLaterOnesIfTheContractSkips(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.answerByBody("1")
		skip := func(m *weir.Message) { m.Skip = true }
		p := w.start()
		first, second := w.post("a", "1", skip), w.post("a", "2", skip)
		p.Wake(0)
		w.waitUntilIdle()
		m.setStatus("1", 200)
		w.replay(first, lane.ReplayOptions{})
		p.Wake(0)
		w.waitUntilIdle()
		w.expectCounts(lane.Counts{Delivered: 2}, first, second)
	})
}

func TestDrainer_ReplayOrder_AnOlderVersionBecomesSuperseded(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.answerByBody("1")
		p := w.start()
		old := w.postVersion("a", "1")
		p.Wake(0)
		w.waitUntilIdle()
		newer := w.postVersion("a", "2")
		p.Wake(0)
		w.waitUntilIdle()
		m.setStatus("1", 200)
		w.expectReplayRefused(old, newer.String())
		w.replay(old, lane.ReplayOptions{Force: true})
		p.Wake(0)
		w.waitUntilIdle()
		if st := w.status(old); st.Stage != weir.Superseded || st.SupersededBy != newer.String() {
			t.Errorf("got %+v, want Stage superseded and SupersededBy %v", st, newer.String())
		}

		w.expectCounts(lane.Counts{Delivered: 1, Superseded: 1}, old, newer)
	})
}

func TestDrainer_ReplayOrder_CostsNothingWithoutDeadMessages(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.answerByBody("bad")
		p := w.start()
		looks := 0 // reads of the list of dead messages
		count := func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Range" && c.Key == "x_" {
				looks++
			}
			return storagetest.Fault{}
		}

		p.faults.Set(count)
		trickle := func(bodies ...string) {
			for _, body := range bodies {
				w.post(body, body)
				p.Wake(0)
				time.Sleep(time.Minute) // so that the holder hands the lane over
			}
		}

		trickle("1", "2", "3", "bad", "4", "5")

		if got := w.rowKeys("l_"); len(got) != 0 || looks != 0 {
			t.Errorf("the holder that saw the message die wrote the rows %v and made %d reads, want none and 0",
				got, looks)
		}

		p.close(t)
		p = w.start()
		p.faults.Set(count)
		trickle("6", "7", "8")

		if got := w.rowKeys("l_"); len(got) != 0 || looks != 1 {
			t.Errorf("the next holder wrote the rows %v and made %d reads, want none and 1",
				got, looks)
		}
	})
}

func TestDrainer_ReplayOrder_WithMoreDeadKeysThanAreTracked(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		table := w.account.Table()
		for seq := int64(1_000_000); seq < 1_010_050; seq += 50 { // more keys than a holder tracks
			var ops []storage.Op
			for i := range int64(50) {
				ops = append(
					ops,
					storage.Op{
						Kind:   storage.Insert,
						Key:    "x_" + lane.OrderPos(seq+i),
						Values: map[string]any{"Key": lane.OrderPos(seq + i)},
					},
				)
			}

			if _, err := table.Transact(t.Context(), "1.0", ops); err != nil {
				t.Fatal(err)
			}
		}

		merge := storage.Op{Kind: storage.Merge, Key: "!tail",
			Values: map[string]any{"Dead": int64(1)}}
		if _, err := table.Transact(t.Context(), "1.0", []storage.Op{merge}); err != nil {
			t.Fatal(err)
		}

		w.post("a", "1")
		p := w.start()
		p.Wake(0)
		time.Sleep(time.Second)
		if got := w.rowKeys("l_"); len(got) != 1 || got[0] != "l_"+(&lane.Store{}).KeyHash("a") {
			t.Errorf("got the rows of last deliveries %v, want the one of key a", got)
		}
	})
}
