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
	"weir/internal/lane/lists"
	"weir/internal/storage"
	"weir/internal/weir"
)

// answersByBody has the status of the CMS's answer for each body. For a body without an entry the
// status is 200.
type answersByBody struct {
	mu     sync.Mutex
	status map[string]int
}

func (m *answersByBody) setStatus(body string, status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status[body] = status
}

// answerByBody makes the CMS answer 422 to the given bodies, and 200 to all others. The test can
// change the returned answers.
func (w *world) answerByBody(rejected ...string) *answersByBody {
	m := &answersByBody{status: map[string]int{}}
	for _, body := range rejected {
		m.setStatus(body, 422)
	}

	w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
		m.mu.Lock()
		status := m.status[string(d.Message.Body)]
		m.mu.Unlock()
		return answerAfter(10*time.Millisecond, max(status, 200))(ctx, d)
	})

	return m
}

// sentBodies returns the bodies of all requests to the CMS, in order.
func (w *world) sentBodies() []string {
	var bodies []string
	for _, s := range w.cms.listRequests() {
		bodies = append(bodies, s.body)
	}
	return bodies
}

func (w *world) replay(id weir.ID, o lane.ReplayOptions) {
	w.t.Helper()
	if _, err := w.store.Requests().Replay(w.t.Context(), id, o); err != nil {
		w.t.Fatalf("replay: %v", err)
	}
}

func (w *world) expectReplayRefused(id weir.ID, because string) {
	w.t.Helper()
	if _, err := w.store.Requests().Replay(w.t.Context(), id,
		lane.ReplayOptions{}); weir.KindOf(err) != weir.Conflict ||
		!strings.Contains(err.Error(), because) {
		w.t.Errorf("replayed: %v, want a conflict with %q", err, because)
	}
}

// expectCounts checks that tail has these counts, and that the messages with these ids have stages
// that add up to the same counts.
func (w *world) expectCounts(want lane.Counts, ids ...weir.ID) {
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
		case weir.Discarded:
			n.Discarded++
		}
	}

	if got := w.control().Tail.Counts; got != want || n != want {
		w.t.Errorf("got counts %+v in tail and %+v of the stages, want %+v", got, n, want)
	}
}

// waitUntilIdle waits until the lane has no waiting message and no request.
func (w *world) waitUntilIdle() {
	w.t.Helper()
	for range 600 {
		if time.Sleep(100 * time.Millisecond); !w.control().HasRequests() &&
			w.control().WaitingCount() == 0 {
			return
		}
	}

	w.t.Fatalf("got %+v, want the lane idle", w.control())
}

// rowKeys returns the row keys of the lane that begin with the prefix.
func (w *world) rowKeys(prefix string) (keys []string) {
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

func TestDrainer_Replay_BeforeWaitingMessages(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.answerByBody("1")
		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{20 * time.Second} })
		first := w.post("a", "1")
		m.setStatus("2", 500)
		second, third := w.post("a", "2"), w.post("a", "3")
		p.Wake(0)
		time.Sleep(time.Second) // 1 is dead, 2 waits for its retry, and 3 waits for 2
		m.setStatus("1", 200)
		m.setStatus("2", 200)
		w.replay(first, lane.ReplayOptions{})
		p.Wake(0)
		time.Sleep(time.Second)

		if st := w.status(first); st.Stage != weir.Delivered || st.Message.Replays != 1 ||
			st.AttemptCount != 2 ||
			len(st.Attempts) != 2 ||
			st.ReplayRefused != "" {
			t.Errorf("got %+v, want Stage delivered, Replays 1, AttemptCount 2, 2 Attempts and no ReplayRefused", st)
		}

		if st := w.status(second); st.Stage != weir.Retrying {
			t.Errorf("got %+v of the second, want it %s before its time", st, weir.Retrying)
		}

		w.waitUntilIdle()
		if got := w.sentBodies(); !slices.Equal(got, []string{"1", "2", "1", "2", "3"}) {
			t.Errorf("sent %v, want [1 2 1 2 3]", got)
		}

		if log := w.cms.listRequests(); log[3].at.Sub(log[1].at) < 20*time.Second ||
			log[3].at.Sub(log[1].at) > 21*time.Second {
			t.Errorf("the second was tried again after %s, want 20s to 21s",
				log[3].at.Sub(log[1].at))
		}

		w.expectCounts(lane.Counts{Delivered: 3}, first, second, third)

		if rows := append(w.rowKeys("x_"), append(w.rowKeys("b_"), append(w.rowKeys("r_"),
			w.rowKeys("w_")...)...)...); len(rows) > 0 {
			t.Errorf("got the rows %v, want none left", rows)
		}
	})
}

func TestDrainer_Replay_SeveralInTheirOrderBehindARetry(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.answerByBody("2", "3")
		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{10 * time.Second} })
		w.post("a", "1", func(m *weir.Message) { m.Skip = true })
		m.setStatus("1", 500) // message 1 waits for its retry in a block of its own
		two, three := w.post("a", "2"), w.post("a", "3")
		p.Wake(0)
		time.Sleep(time.Second)
		for _, body := range []string{"1", "2", "3"} {
			m.setStatus(body, 200)
		}

		w.replay(three, lane.ReplayOptions{})
		w.replay(two, lane.ReplayOptions{})
		p.Wake(0)
		w.waitUntilIdle()

		if got := w.sentBodies(); !slices.Equal(got, []string{"1", "2", "3", "2", "3", "1"}) ||
			w.control().Tail.Counts.Delivered != 3 {
			t.Errorf("sent %v, %+v, want [1 2 3 2 3 1] and Delivered 3", got,
				w.control().Tail.Counts)
		}
	})
}

func TestDrainer_Replay_RefusedOnceALaterOneWasDelivered(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.answerByBody("1")
		p := w.start()
		first := w.post("a", "1")
		w.expectReplayRefused(first, "only a dead message")
		p.Wake(0)
		w.waitUntilIdle()
		time.Sleep(time.Minute)
		second := w.post("a", "2")
		other := w.start() // this process was not the holder when the first message died
		other.Wake(0)
		w.waitUntilIdle()
		m.setStatus("1", 200)
		w.expectReplayRefused(first, second.String())
		w.expectCounts(lane.Counts{Delivered: 1, Dead: 1}, first, second)
		w.replay(first, lane.ReplayOptions{Force: true})
		other.Wake(0)
		w.waitUntilIdle()
		w.expectCounts(lane.Counts{Delivered: 2}, first, second)
		w.expectReplayRefused(first, "is delivered")
	})
}

func TestDrainer_Replay_ForcedWhileAnUnforcedOneWaits(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.answerByBody("1")
		p := w.start()
		first := w.post("a", "1")
		p.Wake(0)
		w.waitUntilIdle()
		w.cms.setAnswer(answerAfter(2*time.Second, 200))
		second := w.post("a", "2")
		p.Wake(0)
		time.Sleep(time.Second) // the CMS works on the second message

		for range 2 {
			w.replay(first, lane.ReplayOptions{})
			w.replay(first, lane.ReplayOptions{Force: true})
		}

		if rows := w.rowKeys("w_"); len(rows) != 2 {
			t.Errorf("got the requests %v, want 2 rows", rows)
		}

		p.Wake(0)
		time.Sleep(10 * time.Second)

		if st := w.status(first); st.Stage != weir.Delivered || st.ReplayRefused != "" ||
			st.Message.Replays != 1 {
			t.Errorf("got %+v, want Stage delivered, no ReplayRefused and Replays 1", st)
		}

		if rows := w.rowKeys("w_"); len(rows) != 0 {
			t.Errorf("got the requests %v, want 0 rows", rows)
		}

		w.expectCounts(lane.Counts{Delivered: 2}, first, second)
	})
}

func TestDrainer_Replay_RefusedByTheHolder(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.answerByBody("1")
		p := w.start()
		first := w.post("a", "1")
		p.Wake(0)
		w.waitUntilIdle()
		w.cms.setAnswer(answerAfter(2*time.Second, 200))
		second := w.post("a", "2")
		p.Wake(0)
		time.Sleep(time.Second) // the CMS works on the second message
		w.replay(first, lane.ReplayOptions{})

		if st, err := w.store.Requests().Replay(t.Context(), first, lane.ReplayOptions{}); err !=
			nil ||
			st.Stage != weir.Dead ||
			len(w.rowKeys("w_")) != 1 {
			t.Errorf("Replay again = %+v, %v, requests %v; want it dead, no error, one", st, err,
				w.rowKeys("w_"))
		}

		edit := lane.ReplayOptions{Edit: &lane.Edit{Body: []byte("x")}}
		if _, err := w.store.Requests().Replay(t.Context(), first, edit); weir.KindOf(err) !=
			weir.Conflict {
			t.Errorf("Replay with an edit while a replay waits = %v, want %v", err, weir.Conflict)
		}

		p.Wake(0)
		time.Sleep(10 * time.Second)
		st := w.status(first)
		if st.Stage != weir.Dead || !strings.Contains(st.ReplayRefused, second.String()) ||
			st.Message.Replays != 0 {
			t.Errorf("got %+v, want Stage dead, %q in ReplayRefused and Replays 0", st,
				second.String())
		}

		if got := w.sentBodies(); !slices.Equal(got, []string{"1", "2"}) ||
			len(w.rowKeys("w_")) != 0 ||
			w.control().HasRequests() {
			t.Errorf("sent %v, requests %v, want [1 2] and none", got, w.rowKeys("w_"))
		}

		w.expectCounts(lane.Counts{Delivered: 1, Dead: 1}, first, second)
	})
}

func TestDrainer_Replay_AttemptsAreCountedAnew(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.answerByBody()
		m.setStatus("1", 500)
		p := w.start(func(c *drain.Config) {
			c.Attempts, c.Backoff.Steps = 2, []time.Duration{time.Second,
				time.Minute}
		})

		id := w.post("a", "1")
		p.Wake(0)
		w.waitUntilIdle()
		w.replay(id, lane.ReplayOptions{})
		p.Wake(0)
		time.Sleep(3 * time.Second)
		st := w.status(id)
		if st.Stage != weir.Dead || st.AttemptCount != 4 || st.Message.Replays != 1 ||
			len(st.Attempts) != 4 ||
			st.Attempts[3].Number != 4 {
			t.Errorf("got %+v, want Stage dead, AttemptCount 4, Replays 1, 4 Attempts and Number 4",
				st)
		}

		w.expectCounts(lane.Counts{Dead: 1}, id)

		if rows, _, err := (lists.Reader{Store: w.store}).ReadDead(t.Context(), 0, 0, 10); err !=
			nil ||
			len(rows) != 1 {
			t.Errorf("got %v, %v, want 1 row and no error", rows, err)
		}
	})
}

func TestDrainer_Replay_CancelledWhileItWaits(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.answerByBody("1")
		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{time.Minute} })
		id := w.post("a", "1")
		p.Wake(0)
		w.waitUntilIdle()
		m.setStatus("1", 500)
		w.replay(id, lane.ReplayOptions{})
		p.Wake(0)
		time.Sleep(time.Second)
		if _, err := w.store.Requests().Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}

		p.Wake(0)
		w.waitUntilIdle()
		w.expectCounts(lane.Counts{Cancelled: 1}, id)
	})
}
