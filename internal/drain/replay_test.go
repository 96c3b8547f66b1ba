package drain_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// moods are what the CMS answers, by body; what is not named it takes.
type moods struct {
	mu     sync.Mutex
	status map[string]int
}

func (m *moods) set(body string, status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status[body] = status
}

func (w *world) moody(rejected ...string) *moods {
	m := &moods{status: map[string]int{}}
	for _, body := range rejected {
		m.set(body, 422)
	}
	w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
		m.mu.Lock()
		status := m.status[string(d.Message.Body)]
		m.mu.Unlock()
		return takes(10*time.Millisecond, max(status, 200))(ctx, d)
	})
	return m
}

// sentBodies are the bodies of all requests, in order.
func (w *world) sentBodies() []string {
	var bodies []string
	for _, s := range w.cms.requests() {
		bodies = append(bodies, s.body)
	}
	return bodies
}

func (w *world) replay(id weir.ID, o lane.ReplayOptions) {
	w.t.Helper()
	if _, err := w.store.Replay(w.t.Context(), id, o); err != nil {
		w.t.Fatalf("replay: %v", err)
	}
}

func (w *world) refused(id weir.ID, because string) {
	w.t.Helper()
	if _, err := w.store.Replay(w.t.Context(), id, lane.ReplayOptions{}); weir.KindOf(err) != weir.Conflict ||
		!strings.Contains(err.Error(), because) {
		w.t.Errorf("replayed: %v, want a conflict that says %q", err, because)
	}
}

// balances holds that a lane at rest counts what its messages say.
func (w *world) balances(want lane.Counts, ids ...weir.ID) {
	w.t.Helper()
	var n lane.Counts
	for _, id := range ids {
		switch w.status(id).Stage {
		case weir.Delivered:
			n.Delivered++
		case weir.Dead:
			n.Dead++
		case weir.Cancelled:
			n.Cancelled++
		case weir.Superseded:
			n.Superseded++
		}
	}
	if got := w.control().Tail.Counts; got != want || n != want {
		w.t.Errorf("tail counts %+v, the messages say %+v, want %+v", got, n, want)
	}
}

// rests waits until nothing waits any more, wishes neither.
func (w *world) rests() {
	w.t.Helper()
	for range 600 {
		if time.Sleep(100 * time.Millisecond); !w.control().HasRequests() && w.control().WaitingCount() == 0 {
			return
		}
	}
	w.t.Fatalf("still at work: %+v", w.control())
}

// rows are the keys of the lane's rows with a prefix.
func (w *world) rows(prefix string) (keys []string) {
	w.t.Helper()
	page, err := w.account.Table().
		Range(w.t.Context(), storage.Query{Partition: "1.0", From: prefix, To: prefix + "~"})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range page.Rows {
		keys = append(keys, r.Key)
	}
	return keys
}

func TestDrainer_Replay_InFrontOfWhatWaits(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.moody("1")
		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{20 * time.Second} })
		first := w.post("a", "1")
		m.set("2", 500)
		second, third := w.post("a", "2"), w.post("a", "3")
		p.Wake(0)
		time.Sleep(time.Second) // 1 is dead, 2 waits for its retry, 3 behind it
		m.set("1", 200)
		m.set("2", 200)
		w.replay(first, lane.ReplayOptions{})
		p.Wake(0)
		time.Sleep(time.Second)
		if st := w.status(first); st.Stage != weir.Delivered || st.Replays != 1 || st.AttemptCount != 2 ||
			len(st.Attempts) != 2 ||
			st.ReplayRefused != "" {
			t.Errorf("%+v", st)
		}
		if st := w.status(second); st.Stage != weir.Retrying {
			t.Errorf("the second went before its time: %+v", st)
		}
		w.rests()
		if got := w.sentBodies(); !slices.Equal(got, []string{"1", "2", "1", "2", "3"}) {
			t.Errorf("sent %v", got)
		}
		if log := w.cms.requests(); log[3].at.Sub(log[1].at) < 20*time.Second ||
			log[3].at.Sub(log[1].at) > 21*time.Second {
			t.Errorf("the second was tried again after %s", log[3].at.Sub(log[1].at))
		}
		w.balances(lane.Counts{Delivered: 3}, first, second, third)
		if rows := append(w.rows("x_"), append(w.rows("b_"), append(w.rows("r_"), w.rows("w_")...)...)...); len(rows) > 0 {
			t.Errorf("left: %v", rows)
		}
	})
}

func TestDrainer_Replay_SeveralInTheirOrderBehindARetry(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.moody("2", "3")
		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{10 * time.Second} })
		w.post("a", "1", func(m *weir.Message) { m.Skip = true })
		m.set("1", 500) // waits in a block of its own
		two, three := w.post("a", "2"), w.post("a", "3")
		p.Wake(0)
		time.Sleep(time.Second)
		for _, body := range []string{"1", "2", "3"} {
			m.set(body, 200)
		}
		w.replay(three, lane.ReplayOptions{})
		w.replay(two, lane.ReplayOptions{})
		p.Wake(0)
		w.rests()
		if got := w.sentBodies(); !slices.Equal(got, []string{"1", "2", "3", "2", "3", "1"}) ||
			w.control().Tail.Counts.Delivered != 3 {
			t.Errorf("sent %v, %+v", got, w.control().Tail.Counts)
		}
	})
}

func TestDrainer_Replay_RefusedOnceALaterOneWasDelivered(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.moody("1")
		p := w.start()
		first := w.post("a", "1")
		w.refused(first, "only a dead message")
		p.Wake(0)
		w.rests()
		time.Sleep(time.Minute)
		second := w.post("a", "2")
		other := w.start() // another process, which did not see the first die
		other.Wake(0)
		w.rests()
		m.set("1", 200)
		w.refused(first, second.String())
		w.balances(lane.Counts{Delivered: 1, Dead: 1}, first, second)
		w.replay(first, lane.ReplayOptions{Force: true})
		other.Wake(0)
		w.rests()
		w.balances(lane.Counts{Delivered: 2}, first, second)
		w.refused(first, "is delivered")
	})
}

func TestDrainer_Replay_ForcedWhileOneThatIsNotWaits(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.moody("1")
		p := w.start()
		first := w.post("a", "1")
		p.Wake(0)
		w.rests()
		w.cms.set(takes(2*time.Second, 200))
		second := w.post("a", "2")
		p.Wake(0)
		time.Sleep(time.Second) // the second is at the CMS
		for range 2 {
			w.replay(first, lane.ReplayOptions{})
			w.replay(first, lane.ReplayOptions{Force: true})
		}
		if rows := w.rows("w_"); len(rows) != 2 {
			t.Errorf("wishes: %v", rows)
		}
		p.Wake(0)
		time.Sleep(10 * time.Second)
		if st := w.status(first); st.Stage != weir.Delivered || st.ReplayRefused != "" || st.Replays != 1 {
			t.Errorf("%+v", st)
		}
		if rows := w.rows("w_"); len(rows) != 0 {
			t.Errorf("wishes: %v", rows)
		}
		w.balances(lane.Counts{Delivered: 2}, first, second)
	})
}

func TestDrainer_Replay_RefusedByTheHolder(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.moody("1")
		p := w.start()
		first := w.post("a", "1")
		p.Wake(0)
		w.rests()
		w.cms.set(takes(2*time.Second, 200))
		second := w.post("a", "2")
		p.Wake(0)
		time.Sleep(time.Second) // the second is at the CMS
		w.replay(first, lane.ReplayOptions{})
		if st, err := w.store.Replay(t.Context(), first, lane.ReplayOptions{}); err != nil || st.Stage != weir.Dead ||
			len(w.rows("w_")) != 1 {
			t.Errorf("again: %+v, %v, %v", st, err, w.rows("w_"))
		}
		edit := lane.ReplayOptions{Edit: &lane.Edit{Body: []byte("x")}}
		if _, err := w.store.Replay(t.Context(), first, edit); weir.KindOf(err) != weir.Conflict {
			t.Errorf("edited while a replay waits: %v", err)
		}
		p.Wake(0)
		time.Sleep(10 * time.Second)
		st := w.status(first)
		if st.Stage != weir.Dead || !strings.Contains(st.ReplayRefused, second.String()) || st.Replays != 0 {
			t.Errorf("%+v", st)
		}
		if got := w.sentBodies(); !slices.Equal(got, []string{"1", "2"}) || len(w.rows("w_")) != 0 ||
			w.control().HasRequests() {
			t.Errorf("sent %v, wishes %v", got, w.rows("w_"))
		}
		w.balances(lane.Counts{Delivered: 1, Dead: 1}, first, second)
	})
}

func TestDrainer_Replay_AttemptsAreCountedAnew(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.moody()
		m.set("1", 500)
		p := w.start(func(c *drain.Config) { c.Attempts, c.Backoff.Steps = 2, []time.Duration{time.Second, time.Minute} })
		id := w.post("a", "1")
		p.Wake(0)
		w.rests()
		w.replay(id, lane.ReplayOptions{})
		p.Wake(0)
		time.Sleep(3 * time.Second)
		st := w.status(id)
		if st.Stage != weir.Dead || st.AttemptCount != 4 || st.Replays != 1 || len(st.Attempts) != 4 ||
			st.Attempts[3].Number != 4 {
			t.Errorf("%+v", st)
		}
		w.balances(lane.Counts{Dead: 1}, id)
		if rows, _, err := w.store.ReadDead(t.Context(), 0, 0, 10); err != nil || len(rows) != 1 {
			t.Errorf("%v, %v", rows, err)
		}
	})
}

func TestDrainer_Replay_CancelledWhileItWaits(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.moody("1")
		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{time.Minute} })
		id := w.post("a", "1")
		p.Wake(0)
		w.rests()
		m.set("1", 500)
		w.replay(id, lane.ReplayOptions{})
		p.Wake(0)
		time.Sleep(time.Second)
		if _, err := w.store.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		p.Wake(0)
		w.rests()
		w.balances(lane.Counts{Cancelled: 1}, id)
	})
}

func TestDrainer_ReplayOrder_OfOneThatWasScheduled(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.moody("due")
		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{20 * time.Second} })
		scheduled := w.post("a", "due", due(time.Now().Add(10*time.Second)))
		before := w.post("a", "before")
		p.Wake(0)
		time.Sleep(15 * time.Second) // it was delivered before, and in front of nothing
		m.set("behind", 500)
		behind := w.post("a", "behind")
		p.Wake(0)
		time.Sleep(time.Second)
		for _, body := range []string{"due", "behind"} {
			m.set(body, 200)
		}
		w.replay(scheduled, lane.ReplayOptions{})
		p.Wake(0)
		w.rests()
		if got := w.sentBodies(); !slices.Equal(got, []string{"before", "due", "behind", "due", "behind"}) {
			t.Errorf("sent %v", got)
		}
		w.balances(lane.Counts{Delivered: 3}, scheduled, before, behind)
	})
}

func TestDrainer_ReplayOrder_AScheduledOneDeliveredLaterStandsAgainstIt(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.moody("log")
		p := w.start()
		scheduled := w.post("a", "due", due(time.Now().Add(10*time.Second)))
		log := w.post("a", "log") // later in the log, earlier in the order
		p.Wake(0)
		w.rests()
		w.refused(log, scheduled.String())
	})
}

func TestDrainer_ReplayOrder_WhatIsForcedDoesNotHideWhatWasLater(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.moody("1", "2")
		p := w.start()
		first, second, third := w.post("a", "1"), w.post("a", "2"), w.post("a", "3")
		p.Wake(0)
		w.rests()
		m.set("1", 200)
		m.set("2", 200)
		w.replay(first, lane.ReplayOptions{Force: true})
		p.Wake(0)
		w.rests()
		w.refused(second, third.String())
		w.balances(lane.Counts{Delivered: 2, Dead: 1}, first, second, third)
	})
}

func TestDrainer_ReplayOrder_WhereTheContractSkipsLaterOnesAreNoMatter(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.moody("1")
		skip := func(m *weir.Message) { m.Skip = true }
		p := w.start()
		first, second := w.post("a", "1", skip), w.post("a", "2", skip)
		p.Wake(0)
		w.rests()
		m.set("1", 200)
		w.replay(first, lane.ReplayOptions{})
		p.Wake(0)
		w.rests()
		w.balances(lane.Counts{Delivered: 2}, first, second)
	})
}

func TestDrainer_ReplayOrder_AnOlderVersionBecomesSuperseded(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.moody("1")
		p := w.start()
		old := w.edit("a", "1")
		p.Wake(0)
		w.rests()
		newer := w.edit("a", "2")
		p.Wake(0)
		w.rests()
		m.set("1", 200)
		w.refused(old, newer.String())
		w.replay(old, lane.ReplayOptions{Force: true})
		p.Wake(0)
		w.rests()
		if st := w.status(old); st.Stage != weir.Superseded || st.SupersededBy != newer.String() {
			t.Errorf("%+v", st)
		}
		w.balances(lane.Counts{Delivered: 1, Superseded: 1}, old, newer)
	})
}

func TestDrainer_ReplayOrder_ItCostsNothingWhereNothingDied(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.moody("bad")
		p := w.start()
		looks := 0 // into the list of the dead
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
				time.Sleep(time.Minute) // the lane is let go
			}
		}
		trickle("1", "2", "3", "bad", "4", "5")
		if got := w.rows("l_"); len(got) != 0 || looks != 0 {
			t.Errorf("noted %v, %d looks by who saw it die", got, looks)
		}
		p.close(t)
		p = w.start()
		p.faults.Set(count)
		trickle("6", "7", "8")
		if got := w.rows("l_"); len(got) != 0 || looks != 1 {
			t.Errorf("noted %v, %d looks by who did not", got, looks)
		}
	})
}

func TestDrainer_ReplayOrder_WithMoreDeadKeysThanAreKnown(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		table := w.account.Table()
		for seq := int64(1_000_000); seq < 1_010_050; seq += 50 { // as far behind as they are many
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
		merge := storage.Op{Kind: storage.Merge, Key: "!tail", Values: map[string]any{"Dead": int64(1)}}
		if _, err := table.Transact(t.Context(), "1.0", []storage.Op{merge}); err != nil {
			t.Fatal(err)
		}
		w.post("a", "1")
		p := w.start()
		p.Wake(0)
		time.Sleep(time.Second)
		if got := w.rows("l_"); len(got) != 1 || got[0] != "l_"+lane.KeyHash("a") {
			t.Errorf("noted: %v", got)
		}
	})
}

func TestDrainer_ReplayOrder_NotKnownAfterAnEarlierProgram(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.moody("1", "2")
		first := w.post("a", "1")
		p := w.start()
		p.Wake(0)
		w.rests()
		time.Sleep(time.Minute)
		// An earlier program writes tail without what it does not know.
		merge := storage.Op{Kind: storage.Merge, Key: "!tail", Values: map[string]any{"Watched": int64(0)}}
		if _, err := w.account.Table().Transact(t.Context(), "1.0", []storage.Op{merge}); err != nil {
			t.Fatal(err)
		}
		w.refused(first, "not known")
		second := w.post("b", "2")
		p.Wake(0)
		w.rests()
		w.refused(first, "not known")
		m.set("2", 200)
		w.replay(second, lane.ReplayOptions{}) // this one died under a holder that watches
		w.replay(first, lane.ReplayOptions{Force: true})
		m.set("1", 200)
		p.Wake(0)
		w.rests()
		w.balances(lane.Counts{Delivered: 2}, first, second)
	})
}

func TestDrainer_ReplayOrder_NotKnownEitherOnceItDiedAgain(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.moody("1")
		first, second := w.post("a", "1"), w.post("a", "2")
		p := w.start()
		p.Wake(0)
		w.rests()
		time.Sleep(time.Minute)
		// An earlier program keeps no record of the second's delivery.
		if _, err := w.account.Table().Transact(t.Context(), "1.0", []storage.Op{
			{Kind: storage.Merge, Key: "!tail", Values: map[string]any{"Watched": int64(0)}},
			{Kind: storage.Delete, Key: "l_" + lane.KeyHash("a")}}); err != nil {
			t.Fatal(err)
		}
		w.replay(first, lane.ReplayOptions{Force: true})
		p.Wake(0)
		w.rests()
		time.Sleep(time.Second)
		if st := w.status(first); st.Stage != weir.Dead || st.Replays != 1 {
			t.Fatalf("%+v", st)
		}
		w.refused(first, "not known")
		w.balances(lane.Counts{Delivered: 1, Dead: 1}, first, second)
	})
}
