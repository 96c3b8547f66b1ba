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

func withDueTime(at time.Time) func(*weir.Message) { return func(m *weir.Message) { m.DueAt = at } }

// measureDelays returns the delay of each message: the time from its due time to its first attempt.
// The parameter moments has the due times. Both maps have the bodies of the messages as keys. A
// message that was sent before its due time fails the test.
func (w *world) measureDelays(moments map[string]time.Time) map[string]time.Duration {
	w.t.Helper()
	out := map[string]time.Duration{}
	for _, s := range w.cms.listRequests() {
		if at, ok := moments[s.body]; ok && s.attempt == 1 {
			out[s.body] = s.at.Sub(at)
			if s.at.Before(at) {
				w.t.Errorf("%s was sent %s early, want it at %s or later", s.body, at.Sub(s.at), at)
			}
		}
	}

	return out
}

func TestDrainer_Due(t *testing.T) {
	for turns := range 4 { // turns is the number of messages of another key that are sent first
		t.Run(fmt.Sprint("WithSkippedFailures/", turns), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				p := w.start()
				w.lanes.Appender.OnFiled, w.lanes.Appender.OnWake = p.OfferAppended, p.WakeOffered
				w.cms.setAnswer(answerAfter(time.Millisecond, 200))
				skip := func(m *weir.Message) { m.Skip = true }
				w.post("a", "due", skip, withDueTime(time.Now().Add(time.Second)))

				for range turns {
					time.Sleep(100 * time.Millisecond)
					w.post("b", "turn")
				}

				time.Sleep(time.Duration(980-100*turns) * time.Millisecond)
				w.cms.setAnswer(answerAfter(time.Second, 200))
				w.post("b", "slow") // the CMS answers only after the due time
				time.Sleep(100 * time.Millisecond)
				w.post("a", "after", skip)
				w.waitUntilEmpty(time.Minute)
				if got := w.listDelivered("a"); !slices.Equal(got, []string{"due", "after"}) {
					t.Errorf("delivered %v, want [due after]", got)
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
		for i, d := range []time.Duration{time.Second, 1500 * time.Millisecond,
			10 * time.Second, time.Hour, farAhead, farAhead + 5*time.Second} {
			body := fmt.Sprint(i)
			moments[body] = time.Now().Add(d)
			id := w.post(body, body, withDueTime(moments[body]))
			if st := w.status(id); st.Stage != weir.Scheduled ||
				!st.Message.DueAt.Equal(moments[body]) {
				t.Errorf("filed as %s for %s, want Stage scheduled and DueAt %v", st.Stage,
					st.Message.DueAt, moments[body])
			}
		}

		p.Wake(0)
		time.Sleep(40 * 24 * time.Hour)
		c := w.waitUntilEmpty(time.Minute)

		for body, late := range w.measureDelays(moments) {
			if late > time.Millisecond {
				t.Errorf("%s was %s late, want at most 1ms", body, late)
			}
		}

		if n := len(w.cms.listRequests()); n != 6 || c.Tail.Counts.Delivered != 6 {
			t.Errorf("%d requests, %+v, want 6 and Delivered 6", n, c.Tail)
		}
	})
}

func TestDrainer_Due_OverdueAtTheStartOfAProcess(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.post("a", "1", withDueTime(time.Now().Add(time.Minute)))
		time.Sleep(time.Hour)
		began := time.Now()
		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
		if log := w.cms.listRequests(); len(log) != 1 || log[0].at.Sub(began) > 2*time.Second {
			t.Errorf("got %+v, want one request, within 2 s", log)
		}
	})
}

func TestDrainer_Due_TakesItsPlaceInItsKeyAtItsDueTime(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(100*time.Millisecond, 200))
		p := w.start()
		w.lanes.Appender.OnFiled, w.lanes.Appender.OnWake = p.OfferAppended, p.WakeOffered
		at := time.Now().Add(time.Second)
		w.post("a", "due", withDueTime(at))
		w.post("a", "first")
		time.Sleep(700 * time.Millisecond)
		for i := range 10 { // the CMS works on these messages until after the due time
			w.post("b", fmt.Sprint("b", i))
		}

		w.post("a", "before")
		time.Sleep(400 * time.Millisecond)
		w.post("a", "after")
		w.waitUntilEmpty(time.Minute)

		if got := w.listDelivered("a"); !slices.Equal(got,
			[]string{"first", "before", "due", "after"}) {
			t.Errorf("delivered %v, want [first before due after]", got)
		}

		w.measureDelays(map[string]time.Time{"due": at})
	})
}

func TestDrainer_Due_BehindARetryOfItsKey(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "fails" && d.Attempt < 3 {
				return newAnswer(500)
			}
			return answerAfter(time.Millisecond, 200)(ctx, d)
		})

		p := w.start(func(c *drain.Config) { c.Rand = func() float64 { return 1 } })
		w.lanes.Appender.OnFiled, w.lanes.Appender.OnWake = p.OfferAppended, p.WakeOffered
		w.post("a", "fails")
		w.post("a", "second", withDueTime(time.Now().Add(time.Second)))
		w.post("a", "third", withDueTime(time.Now().Add(1500*time.Millisecond)))
		w.post("a", "log")
		w.waitUntilEmpty(time.Minute)

		if got := w.listDelivered("a"); !slices.Equal(got,
			[]string{"fails", "log", "second", "third"}) {
			t.Errorf("delivered %v, want [fails log second third]", got)
		}
	})
}

func TestDrainer_Due_FailsBeforeOneThatIsDue(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "fails" && d.Attempt == 1 {
				// the CMS answers after the due time of "due"
				return answerAfter(300*time.Millisecond, 500)(ctx, d)
			}
			return answerAfter(time.Millisecond, 200)(ctx, d)
		})

		// Both messages are appended before a process looks at the lane. If the message "fails"
		// were appended after the due message has got its position, the due message would be sent
		// first.
		w.post("a", "due", withDueTime(time.Now().Add(200*time.Millisecond)))
		w.post("a", "fails")
		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, []string{"fails", "due"}) {
			t.Errorf("delivered %v, want [fails due]", got)
		}
	})
}

func TestDrainer_Due_ManyAtOneMoment(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(time.Millisecond, 200))
		at := time.Now().Add(5 * time.Second)
		var want []string
		for i := range 600 {
			body := fmt.Sprintf("%03d", i)
			w.post("a", body, withDueTime(at))
			want = append(want, body)
		}

		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
	})
}

func TestDrainer_Due_ANewerVersionFallsDueBehindARetry(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Version == "8" && d.Attempt == 1 {
				return newAnswer(500)
			}
			return answerAfter(100*time.Millisecond, 200)(ctx, d)
		})

		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{2 * time.Second} })
		w.postVersion("a", "8")
		w.postVersion("a", "9", withDueTime(time.Now().Add(1500*time.Millisecond)))
		p.Wake(0)
		time.Sleep(time.Second)
		for i := range 100 { // the holder has not read all of them when the retry begins
			w.post(fmt.Sprint("b", i), "")
		}

		old := w.postVersion("a", "5")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		if st := w.status(old); st.Stage != weir.Superseded {
			t.Errorf("an older one was %s, want superseded", st.Stage)
		}
	})
}

func TestDrainer_Due_TheHolderDiesWithTheLogUnread(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(100*time.Millisecond, 200))
		first := w.start()
		w.post("a", "due", withDueTime(time.Now().Add(time.Second)))
		first.Wake(0)
		time.Sleep(500 * time.Millisecond)
		for i := range 100 { // the holder has not read all of them at the due time
			w.post(fmt.Sprint("b", i), "")
		}

		w.post("a", "before")

		// the due message has its position, and waits for the message "before"
		time.Sleep(time.Second)
		first.kill()
		w.post("a", "after")
		w.start().Wake(0)
		w.waitUntilEmpty(2 * time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, []string{"before", "due", "after"}) {
			t.Errorf("delivered %v, want [before due after]", got)
		}
	})
}

func TestDrainer_Due_TheHolderDiedLongBefore(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		first := w.start()
		at := time.Now().Add(time.Hour)
		w.post("a", "due", withDueTime(at))
		w.post("a", "now")
		first.Wake(0)
		time.Sleep(time.Second)
		first.kill() // while the first process holds the lane
		second := w.start(func(c *drain.Config) { c.Settle = 5 * time.Second })
		for time.Now().Before(at.Add(time.Minute)) {
			second.Wake(0) // as the sweep does
			time.Sleep(time.Minute)
		}

		for body, late := range w.measureDelays(map[string]time.Time{"due": at}) {
			if late > time.Millisecond {
				t.Errorf("%s was %s late, want at most 1ms", body, late)
			}
		}

		w.waitUntilEmpty(time.Minute)
	})
}

func TestDrainer_Due_TheHolderDiesOverANewerVersionWithTheLogUnread(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			switch string(d.Message.Body) {
			case "v1":
				return newAnswer(500)
			case "v3":
				return answerAfter(time.Second, 200)(ctx, d)
			}
			return answerAfter(20*time.Millisecond, 200)(ctx, d)
		})

		version := func(v string) func(*weir.Message) {
			return func(m *weir.Message) { m.Supersede, m.Version = true, v }
		}
		steps := func(c *drain.Config) {
			c.Backoff.Steps = []time.Duration{1200 * time.Millisecond}
		}
		first := w.start(steps)
		w.lanes.Appender.OnFiled, w.lanes.Appender.OnWake = first.OfferAppended, first.WakeOffered
		w.post("a", "v1", version("1"))
		w.post("a", "v3", version("3"), withDueTime(time.Now().Add(time.Second)))
		time.Sleep(800 * time.Millisecond)
		for i := range 200 {
			w.post(fmt.Sprint("b", i), "")
		}

		time.Sleep(time.Second) // the CMS works on version 3
		first.kill()
		w.lanes.Appender.OnFiled = nil
		w.start(steps).Wake(0)
		w.waitUntilEmpty(2 * time.Minute)
		newer := false
		for _, s := range w.cms.listRequests() {
			if newer = newer || s.body == "v3"; newer && s.body == "v1" {
				t.Error("sent v1 after v3, want no older version after a newer one")
			}
		}

		if !newer || len(w.listDelivered("a")) == 0 {
			t.Errorf("v3 sent: %t, delivered %v, want v3 sent and a delivered", newer,
				w.listDelivered("a"))
		}
	})
}

func TestDrainer_Due_TheHolderDiesOverIt(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(time.Second, 200))
		first := w.start()
		at := time.Now().Add(3 * time.Second)
		w.post("a", "due", withDueTime(at))
		first.Wake(0)
		time.Sleep(3500 * time.Millisecond) // the CMS works on the message
		first.kill()
		w.post("a", "newer")
		w.start().Wake(0)
		w.waitUntilEmpty(2 * time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got[len(got)-2:], []string{"due", "newer"}) {
			t.Errorf("delivered %v, want [due newer]", got)
		}
	})
}

// A retry is sent at its time, even if the holder has left the lane meanwhile, and even if storage
// is slow.
func TestDrainer_RetryAtItsTime(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Attempt <= 3 {
				return newAnswer(500)
			}
			return answerAfter(time.Millisecond, 200)(ctx, d)
		})

		p := w.start(slowStorage, func(c *drain.Config) {
			c.Backoff.Steps = []time.Duration{300 * time.Millisecond, 10 * time.Second,
				2 * time.Hour}
		})

		id := w.post("a", "1")
		p.Wake(0)
		time.Sleep(3 * time.Hour)
		attempts := w.status(id).Attempts
		for i, wait := range []time.Duration{300 * time.Millisecond, 10 * time.Second,
			2 * time.Hour} {
			if late := attempts[i+1].At.Sub(attempts[i].At) - wait; late < 0 ||
				late > 5*time.Millisecond {
				t.Errorf("retry %d was %s late, want 0 to 5ms", i+1, late)
			}
		}
	})
}

func TestDrainer_AwaitFinal(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		id := w.post("a", "1")
		final, stop := p.AwaitFinal(id)
		defer stop()
		p.Wake(0)
		began := time.Now()
		<-final

		if time.Since(began) > time.Second || w.status(id).Stage != weir.Delivered {
			t.Errorf("after %s: %s, want at most 1s and Stage delivered", time.Since(began),
				w.status(id).Stage)
		}
	})
}

type slowTable struct{ storage.Table }

const storageTime = 10 * time.Millisecond

func (s slowTable) Transact(ctx context.Context, p string,
	ops []storage.Op) ([]storage.ETag, error) {
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
