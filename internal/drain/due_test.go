package drain_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/storage"
	"weir/internal/weir"
)

func due(at time.Time) func(*weir.Message) { return func(m *weir.Message) { m.DueAt = at } }

// late gives how long after its moment each body was sent, and fails for what was early.
func (w *world) late(moments map[string]time.Time) map[string]time.Duration {
	w.t.Helper()
	out := map[string]time.Duration{}
	for _, s := range w.cms.requests() {
		if at, ok := moments[s.body]; ok && s.attempt == 1 {
			out[s.body] = s.at.Sub(at)
			if s.at.Before(at) {
				w.t.Errorf("%s was sent %s early", s.body, at.Sub(s.at))
			}
		}
	}
	return out
}

func TestDrainer_Due(t *testing.T) {
	for turns := range 4 { // of the log and of what is held
		t.Run(fmt.Sprint("WhereFailuresAreSkippedToo/", turns), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				p := w.start()
				w.append.OnFiled, w.append.OnWake = p.OfferAppended, p.WakeOffered
				w.cms.set(takes(time.Millisecond, 200))
				skip := func(m *weir.Message) { m.Skip = true }
				w.post("a", "due", skip, due(time.Now().Add(time.Second)))
				for range turns {
					time.Sleep(100 * time.Millisecond)
					w.post("b", "turn")
				}
				time.Sleep(time.Duration(980-100*turns) * time.Millisecond)
				w.cms.set(takes(time.Second, 200))
				w.post("b", "slow") // it takes the CMS beyond the moment
				time.Sleep(100 * time.Millisecond)
				w.post("a", "after", skip)
				w.settled(time.Minute)
				if got := w.delivered("a"); !slices.Equal(got, []string{"due", "after"}) {
					t.Errorf("delivered %v", got)
				}
			})
		})
	}
}

func TestDrainer_Due_AtItsMomentAndNeverEarly(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		moments := map[string]time.Time{}
		const farAhead = 40 * 24 * time.Hour
		for i, d := range []time.Duration{time.Second, 1500 * time.Millisecond, 10 * time.Second, time.Hour,
			farAhead, farAhead + 5*time.Second} {
			body := fmt.Sprint(i)
			moments[body] = time.Now().Add(d)
			id := w.post(body, body, due(moments[body]))
			if st := w.status(id); st.Stage != weir.Scheduled || !st.Message.DueAt.Equal(moments[body]) {
				t.Errorf("filed as %s for %s", st.Stage, st.Message.DueAt)
			}
		}
		p.Wake(0)
		time.Sleep(40 * 24 * time.Hour)
		c := w.settled(time.Minute)
		for body, late := range w.late(moments) {
			if late > time.Millisecond {
				t.Errorf("%s was %s late", body, late)
			}
		}
		if n := len(w.cms.requests()); n != 6 || c.Tail.Counts.Delivered != 6 {
			t.Errorf("%d requests, %+v", n, c.Tail)
		}
	})
}

func TestDrainer_Due_FiledWhileNothingRanAndOverdue(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.post("a", "1", due(time.Now().Add(time.Minute)))
		time.Sleep(time.Hour)
		began := time.Now()
		w.start().Wake(0)
		w.settled(time.Minute)
		if log := w.cms.requests(); len(log) != 1 || log[0].at.Sub(began) > 2*time.Second {
			t.Errorf("%+v", log)
		}
	})
}

func TestDrainer_Due_JoinsItsKeyWhereTheLogStood(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(takes(100*time.Millisecond, 200))
		p := w.start()
		w.append.OnFiled, w.append.OnWake = p.OfferAppended, p.WakeOffered
		at := time.Now().Add(time.Second)
		w.post("a", "due", due(at))
		w.post("a", "first")
		time.Sleep(700 * time.Millisecond)
		for i := range 10 { // they take the CMS beyond the moment
			w.post("b", fmt.Sprint("b", i))
		}
		w.post("a", "before")
		time.Sleep(400 * time.Millisecond)
		w.post("a", "after")
		w.settled(time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, []string{"first", "before", "due", "after"}) {
			t.Errorf("delivered %v", got)
		}
		w.late(map[string]time.Time{"due": at})
	})
}

func TestDrainer_Due_BehindARetryOfItsKey(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "fails" && d.Attempt < 3 {
				return answer(500)
			}
			return takes(time.Millisecond, 200)(ctx, d)
		})
		p := w.start(func(c *drain.Config) { c.Rand = func() float64 { return 1 } })
		w.append.OnFiled, w.append.OnWake = p.OfferAppended, p.WakeOffered
		w.post("a", "fails")
		w.post("a", "second", due(time.Now().Add(time.Second)))
		w.post("a", "third", due(time.Now().Add(1500*time.Millisecond)))
		w.post("a", "log")
		w.settled(time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, []string{"fails", "log", "second", "third"}) {
			t.Errorf("delivered %v", got)
		}
	})
}

func TestDrainer_Due_FailsBeforeOneThatIsDue(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "fails" && d.Attempt == 1 {
				return takes(300*time.Millisecond, 500)(ctx, d) // over the moment of the other
			}
			return takes(time.Millisecond, 200)(ctx, d)
		})
		// Both are filed before a process looks: one that is released already keeps its place.
		w.post("a", "due", due(time.Now().Add(200*time.Millisecond)))
		w.post("a", "fails")
		w.start().Wake(0)
		w.settled(time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, []string{"fails", "due"}) {
			t.Errorf("delivered %v", got)
		}
	})
}

func TestDrainer_Due_ManyAtOneMoment(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(takes(time.Millisecond, 200))
		at := time.Now().Add(5 * time.Second)
		var want []string
		for i := range 600 {
			body := fmt.Sprintf("%03d", i)
			w.post("a", body, due(at))
			want = append(want, body)
		}
		w.start().Wake(0)
		w.settled(time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, want) {
			t.Errorf("delivered %v", got)
		}
	})
}

func TestDrainer_Due_ANewerVersionFallsDueBehindARetry(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Version == "8" && d.Attempt == 1 {
				return answer(500)
			}
			return takes(100*time.Millisecond, 200)(ctx, d)
		})
		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{2 * time.Second} })
		w.edit("a", "8")
		w.edit("a", "9", due(time.Now().Add(1500*time.Millisecond)))
		p.Wake(0)
		time.Sleep(time.Second)
		for i := range 100 { // more than are read when the retry comes
			w.post(fmt.Sprint("b", i), "")
		}
		old := w.edit("a", "5")
		p.Wake(0)
		w.settled(time.Minute)
		if st := w.status(old); st.Stage != weir.Superseded {
			t.Errorf("an older one was %s", st.Stage)
		}
	})
}

func TestDrainer_Due_TheHolderDiesWithTheLogUnread(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(takes(100*time.Millisecond, 200))
		first := w.start()
		w.post("a", "due", due(time.Now().Add(time.Second)))
		first.Wake(0)
		time.Sleep(500 * time.Millisecond)
		for i := range 100 { // more than are read by the moment
			w.post(fmt.Sprint("b", i), "")
		}
		w.post("a", "before")
		time.Sleep(time.Second) // it is released, and waits for its key's earlier one
		first.kill()
		w.post("a", "after")
		w.start().Wake(0)
		w.settled(2 * time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, []string{"before", "due", "after"}) {
			t.Errorf("delivered %v", got)
		}
	})
}

func TestDrainer_Due_TheHolderDiedLongBefore(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		first := w.start()
		at := time.Now().Add(time.Hour)
		w.post("a", "due", due(at))
		w.post("a", "now")
		first.Wake(0)
		time.Sleep(time.Second)
		first.kill() // with the lane in its hands
		second := w.start(func(c *drain.Config) { c.Settle = 5 * time.Second })
		for time.Now().Before(at.Add(time.Minute)) {
			second.Wake(0) // as the sweep does
			time.Sleep(time.Minute)
		}
		for body, late := range w.late(map[string]time.Time{"due": at}) {
			if late > time.Millisecond {
				t.Errorf("%s was %s late", body, late)
			}
		}
		w.settled(time.Minute)
	})
}

func TestDrainer_Due_TheHolderDiesOverANewerVersionWithTheLogUnread(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			switch string(d.Message.Body) {
			case "v1":
				return answer(500)
			case "v3":
				return takes(time.Second, 200)(ctx, d)
			}
			return takes(20*time.Millisecond, 200)(ctx, d)
		})
		version := func(v string) func(*weir.Message) {
			return func(m *weir.Message) { m.Supersede, m.Version = true, v }
		}
		steps := func(c *drain.Config) { c.Backoff.Steps = []time.Duration{1200 * time.Millisecond} }
		first := w.start(steps)
		w.append.OnFiled, w.append.OnWake = first.OfferAppended, first.WakeOffered
		w.post("a", "v1", version("1"))
		w.post("a", "v3", version("3"), due(time.Now().Add(time.Second)))
		time.Sleep(800 * time.Millisecond)
		for i := range 200 {
			w.post(fmt.Sprint("b", i), "")
		}
		time.Sleep(time.Second) // the newer version is at the CMS
		first.kill()
		w.append.OnFiled = nil
		w.start(steps).Wake(0)
		w.settled(2 * time.Minute)
		newer := false
		for _, s := range w.cms.requests() {
			if newer = newer || s.body == "v3"; newer && s.body == "v1" {
				t.Error("the older version was sent after the newer one")
			}
		}
		if !newer || len(w.delivered("a")) == 0 {
			t.Error("the newer version was never sent")
		}
	})
}

func TestDrainer_Due_TheHolderDiesOverIt(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(takes(time.Second, 200))
		first := w.start()
		at := time.Now().Add(3 * time.Second)
		w.post("a", "due", due(at))
		first.Wake(0)
		time.Sleep(3500 * time.Millisecond) // it is at the CMS
		first.kill()
		w.post("a", "newer")
		w.start().Wake(0)
		w.settled(2 * time.Minute)
		if got := w.delivered("a"); !slices.Equal(got[len(got)-2:], []string{"due", "newer"}) {
			t.Errorf("delivered %v", got)
		}
	})
}

// A retry goes at its time, whether the holder stayed or left the lane meanwhile; storage
// takes its time, and the retry does not wait for it.
func TestDrainer_RetryAtItsTime(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Attempt <= 3 {
				return answer(500)
			}
			return takes(time.Millisecond, 200)(ctx, d)
		})
		p := w.start(slowStorage, func(c *drain.Config) {
			c.Backoff.Steps = []time.Duration{300 * time.Millisecond, 10 * time.Second, 2 * time.Hour}
		})
		id := w.post("a", "1")
		p.Wake(0)
		time.Sleep(3 * time.Hour)
		attempts := w.status(id).Attempts
		for i, wait := range []time.Duration{300 * time.Millisecond, 10 * time.Second, 2 * time.Hour} {
			if late := attempts[i+1].At.Sub(attempts[i].At) - wait; late < 0 || late > 5*time.Millisecond {
				t.Errorf("retry %d was %s late", i+1, late)
			}
		}
	})
}

func TestDrainer_Await(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		id := w.post("a", "1")
		final, stop := p.AwaitFinal(id)
		defer stop()
		p.Wake(0)
		began := time.Now()
		<-final
		if time.Since(began) > time.Second || w.status(id).Stage != weir.Delivered {
			t.Errorf("after %s: %s", time.Since(began), w.status(id).Stage)
		}
	})
}

// slowTable takes its time, as storage does.
type slowTable struct{ storage.Table }

const storageTime = 10 * time.Millisecond

func (s slowTable) Transact(ctx context.Context, p string, ops []storage.Op) ([]storage.ETag, error) {
	time.Sleep(storageTime)
	defer time.Sleep(storageTime)
	return s.Table.Transact(ctx, p, ops)
}

func (s slowTable) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	time.Sleep(storageTime)
	return s.Table.Range(ctx, q)
}

func (s slowTable) Get(ctx context.Context, p, key string) (storage.Row, error) {
	time.Sleep(storageTime)
	return s.Table.Get(ctx, p, key)
}

func slowStorage(c *drain.Config) { c.Store.Table = slowTable{c.Store.Table} }
