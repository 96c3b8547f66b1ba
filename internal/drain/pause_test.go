package drain_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// pause pauses a key, or the lane if the key is empty. If "until" is zero, the pause has no end.
func (w *world) pause(key string, until time.Time) {
	w.t.Helper()
	pause := weir.Pause{Key: key, Reason: "test", Since: time.Now(), Until: until}
	if err := w.store.Pauses().Pause(w.t.Context(), pause); err != nil {
		w.t.Fatal(err)
	}
}

// resume ends the pause of a key, or of the lane if the key is empty. It also wakes the process, as
// the API does.
func (w *world) resume(p *process, key string) {
	w.t.Helper()
	if err := w.store.Pauses().Resume(w.t.Context(), 0, key); err != nil {
		w.t.Fatal(err)
	}
	p.Wake(0)
}

// listSentBetween returns the bodies of the attempts that began at "from" or later, and before
// "to".
func (w *world) listSentBetween(from, to time.Time) (bodies []string) {
	for _, s := range w.cms.listRequests() {
		if !s.at.Before(from) && s.at.Before(to) {
			bodies = append(bodies, s.body)
		}
	}
	return bodies
}

func withSkip(m *weir.Message) { m.Skip = true }

func TestPause_Lane(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		w.pause("", time.Time{})

		for i := range 20 {
			w.post(fmt.Sprint(i%3), fmt.Sprint(i))
			p.Wake(0)
		}

		due := time.Now().Add(time.Minute)
		w.post("0", "due", func(m *weir.Message) { m.DueAt = due })

		if r := p.Join(t.Context(), 0); r.State != drain.Waiting || !r.Paused ||
			r.Reason != "an operator has paused it: test" {
			t.Errorf("got %+v, want State %v, Paused true and Reason \"an operator has paused it: test\"", r,
				drain.Waiting)
		}

		time.Sleep(time.Hour)
		if n := len(w.cms.listRequests()); n != 0 {
			t.Fatalf("%d requests of a paused lane, want 0", n)
		}

		w.resume(p, "")
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("0"); fmt.Sprint(got) != "[0 3 6 9 12 15 18 due]" {
			t.Errorf("delivered %v, want [0 3 6 9 12 15 18 due]", got)
		}
	})
}

func TestPause_TakesEffectInTheMidst(t *testing.T) {
	for name, takesTime := range map[string]time.Duration{"QuickCMS": 20 * time.Millisecond,
		"SlowCMS": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.cms.setAnswer(answerAfter(takesTime, 200))
				p := w.start()
				for i := range 2000 {
					w.post(fmt.Sprint(i), fmt.Sprint(i))
				}

				p.Wake(0)
				time.Sleep(12 * time.Second)
				w.pause("", time.Time{})
				paused := time.Now()
				time.Sleep(time.Minute)
				if got := w.listSentBetween(paused.Add(1500*time.Millisecond), time.Now()); len(got) > 0 {
					t.Errorf("%d were sent later than 1.5 s after the pause, want none", len(got))
				}

				if len(w.listSentBetween(time.Time{}, paused)) == 0 {
					t.Error("nothing was sent before the pause, want some")
				}

				w.resume(p, "")
				w.waitUntilEmpty(4 * time.Hour)
			})
		})
	}
}

func TestPause_EndsByItself(t *testing.T) {
	for name, key := range map[string]string{"Lane": "", "Key": "a"} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				p := w.start()
				until := time.Now().Add(10 * time.Minute)
				w.pause(key, until)
				w.post("a", "1")
				w.post("a", "2")
				p.Wake(0)
				w.waitUntilEmpty(11 * time.Minute)

				if log := w.cms.listRequests(); len(log) != 2 || log[0].body != "1" ||
					log[0].at.Before(until) ||
					log[0].at.Sub(until) > 100*time.Millisecond {
					t.Errorf("paused until %s: got %+v, want message 1 within 100 ms of it",
						until, log)
				}
			})
		})
	}
}

func TestPause_Key(t *testing.T) {
	for name, kind := range map[string]func(*weir.Message){"Held": func(*weir.Message) {},
		"Skip": withSkip} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				p := w.start()
				w.lanes.Appender.OnFiled, w.lanes.Appender.OnWake = p.OfferAppended, p.WakeOffered
				w.pause("a", time.Time{})

				for i := range 10 {
					w.post("a", fmt.Sprint(i), kind)
					w.post("b", fmt.Sprint("b", i))
				}

				due := time.Now().Add(5 * time.Second)
				w.post("a", "due", kind, func(m *weir.Message) { m.DueAt = due })
				time.Sleep(10 * time.Second)
				w.post("a", "last", kind)
				time.Sleep(time.Hour)
				if n := len(w.listDelivered("b")); n != 10 {
					t.Errorf("%d of b were delivered, want 10", n)
				}

				if got := w.listDelivered("a"); len(got) != 0 {
					t.Errorf("%v of a were sent, want none", got)
				}

				if c := w.control(); c.Tail.NextDueAt.IsZero() || !c.Tail.DueAt().IsZero() {
					t.Errorf("NextDueAt is %s and DueAt() is %s, want a time for the first and none for the second",
						c.Tail.NextDueAt, c.Tail.DueAt())
				}

				w.resume(p, "a")
				w.post("a", "after", kind)
				w.waitUntilEmpty(time.Minute)

				if got := w.listDelivered("a"); fmt.Sprint(got) !=
					"[0 1 2 3 4 5 6 7 8 9 due last after]" {
					t.Errorf("delivered %v, want [0 1 2 3 4 5 6 7 8 9 due last after]", got)
				}
			})
		})
	}
}

// A commit stores the messages of a paused key as held. The pause can end before that commit. The
// holder reads the key's queue only after the commit, and then sends the messages at once.
func TestPause_EndsBeforeParkedMessagesAreWritten(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(60*time.Millisecond, 200))
		p := w.start()
		until := time.Now().Add(30 * time.Millisecond)
		w.pause("a", until)
		w.post("a", "1")
		for i := range 5 {
			w.post("b", fmt.Sprint(i))
		}

		p.Wake(0)
		w.waitUntilEmpty(time.Minute)

		for _, s := range w.cms.listRequests() {
			if s.key == "a" && s.at.Sub(until) > 200*time.Millisecond {
				t.Errorf("the message of key a was sent %s after the pause, want at most 200ms",
					s.at.Sub(until))
			}
		}
	})
}

// If a key is paused while it has work, all its messages keep their order: messages that wait for a
// retry, due messages, and messages of the log.
func TestPause_KeyInTheMidst(t *testing.T) {
	for name, kind := range map[string]func(*weir.Message){"Held": func(*weir.Message) {},
		"Skip": withSkip} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
					if string(d.Message.Body) == "0" && d.Attempt == 1 {
						return answerAfter(time.Second, 500)(ctx, d)
					}
					return answerAfter(time.Second, 200)(ctx, d)
				})

				p := w.start()
				due := time.Now().Add(2500 * time.Millisecond)
				w.post("a", "due", kind, func(m *weir.Message) { m.DueAt = due })
				for i := range 6 {
					w.post("a", fmt.Sprint(i), kind)
				}

				p.Wake(0)
				time.Sleep(1200 * time.Millisecond)
				w.pause("a", time.Time{})
				time.Sleep(time.Minute)
				before := len(w.cms.listRequests())
				w.resume(p, "a")
				w.waitUntilEmpty(time.Minute)
				var firsts []string
				for _, s := range w.cms.listRequests() {
					if s.attempt == 1 {
						firsts = append(firsts, s.body)
					}
				}

				if fmt.Sprint(firsts) != "[0 1 2 3 4 5 due]" || before >= len(firsts) {
					t.Errorf("first attempts %v, %d requests before the resume; want [0 1 2 3 4 5 due], some after it",
						firsts, before)
				}
			})
		})
	}
}

func TestPause_OutlivesItsHolder(t *testing.T) {
	for name, key := range map[string]string{"Lane": "", "Key": "a"} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				first := w.start()
				w.cms.setAnswer(answerAfter(3*time.Second, 200))
				for i := range 5 {
					w.post("a", fmt.Sprint(i))
				}

				first.Wake(0)
				time.Sleep(time.Second)
				w.pause(key, time.Time{})
				first.kill()
				second := w.start()
				second.Wake(0)
				time.Sleep(time.Hour)
				if got := w.listDelivered("a"); len(got) != 1 {
					t.Errorf("delivered %v, want one", got)
				}

				w.resume(second, key)
				w.waitUntilEmpty(time.Minute)

				if got := w.listDelivered("a"); !slices.Equal(slices.Compact(got),
					[]string{"0", "1", "2", "3", "4"}) {
					t.Errorf("delivered %v, want [0 1 2 3 4]", got)
				}
			})
		})
	}
}

// lateAnswer is a table that delays the answer to one read of the control rows. The test sends the
// delay to the channel "late". The channel "asked" is closed when the delay begins.
type lateAnswer struct {
	storage.Table
	late  chan time.Duration
	asked chan struct{}
}

func (s lateAnswer) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	page, err := s.Table.Range(ctx, q)
	if q.From == "!head" {
		select {
		case d := <-s.late:
			close(s.asked)
			time.Sleep(d)
		default:
		}
	}

	return page, err
}

// Two reads of the control rows overlap. The read that began later shows a pause, and is answered
// first. Then the read that began earlier is answered, without the pause. This late answer must not
// end the pause.
func TestPause_SeenAgainstALateAnswer(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(30*time.Millisecond, 200))
		answers := lateAnswer{late: make(chan time.Duration, 1), asked: make(chan struct{})}
		p := w.start(func(c *drain.Config) {
			answers.Table = c.Store.Table
			c.Store.Table = answers
		})

		w.lanes.Appender.OnFiled, w.lanes.Appender.OnWake = p.OfferAppended, p.WakeOffered
		for range 200 {
			w.post("b", "b")
		}

		time.Sleep(2 * time.Second)
		answers.late <- 1200 * time.Millisecond
		<-answers.asked
		w.pause("a", time.Time{})

		// When this message becomes due, the holder reads the control rows.
		w.post("c", "due", withDueTime(time.Now().Add(100*time.Millisecond)))
		time.Sleep(200 * time.Millisecond)
		w.post("a", "1")
		time.Sleep(time.Minute)
		if got := w.listDelivered("a"); len(got) > 0 {
			t.Errorf("%v of the paused key was sent, want none", got)
		}

		if len(w.listDelivered("b")) != 200 || len(w.listDelivered("c")) != 1 {
			t.Errorf("delivered %d of b and %d of c, want 200 and 1", len(w.listDelivered("b")),
				len(w.listDelivered("c")))
		}
	})
}

// A process has read the control rows while key a was paused. Before this process takes the lane,
// the pause ends, and another holder sees the end of the pause. If the process used the outdated
// pause, it would write into tail that no message of key a may be sent. If the process then died,
// no process would take the lane to send messages of key a.
func TestPause_AReadFromBeforeTheFormerHolder(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.pause("a", time.Time{})
		w.post("b", "b")
		answers := lateAnswer{late: make(chan time.Duration, 1), asked: make(chan struct{})}
		late := w.start(func(c *drain.Config) {
			answers.Table = c.Store.Table
			c.Store.Table = answers
		})

		answers.late <- time.Minute
		late.Wake(0)
		<-answers.asked
		meanwhile := w.start()
		meanwhile.Wake(0)
		w.waitUntilEmpty(10 * time.Second)
		w.resume(meanwhile, "a")
		time.Sleep(5 * time.Second)
		meanwhile.close(t)
		if c := w.control(); c.HasRequests() || c.Tail.IsOpen {
			t.Fatalf("got %+v, want no requests, and the lane not open", c)
		}

		w.post("a", "a")

		// the CMS does not answer before the process is killed
		w.cms.setAnswer(answerAfter(time.Hour, 200))

		for end := time.Now().Add(2 * time.Minute); !w.control().Tail.IsOpen &&
			time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}

		for range 500 {
			time.Sleep(time.Millisecond)
			if c := w.control(); !c.HasWork(time.Now()) {
				t.Fatalf("got no work in %+v, want some while the message is at the CMS", c.Tail)
			}
		}

		late.kill()
		w.cms.setAnswer(answerAfter(time.Millisecond, 200))
		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
	})
}

func TestResume_TriesTheCMSAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start(func(c *drain.Config) { c.Backoff = drain.Backoff{Min: time.Hour, Max: time.Hour} })
		w.cms.setAnswer(answerAfter(0, 503))
		w.post("a", "1")
		p.Wake(0)
		time.Sleep(10 * time.Second)

		if c := w.control(); !c.Tail.PausedUntil.After(time.Now().Add(10*time.Minute)) ||
			c.Tail.LastError != "503 from the CMS" ||
			c.Tail.LastErrorAt.IsZero() {
			t.Fatalf("got %+v, want a pause of more than 10 min, and the error \"503 from the CMS\"", c.Tail)
		}

		w.cms.setAnswer(answerAfter(0, 200))
		w.resume(p, "")
		if c := w.waitUntilEmpty(5 * time.Second); !c.Tail.PausedUntil.IsZero() || c.HasRequests() {
			t.Errorf("got %+v, want no pause and no requests", c.Tail)
		}
	})
}

func TestPause_Cancel(t *testing.T) {
	for name, kind := range map[string]func(*weir.Message){"Held": func(*weir.Message) {},
		"Skip": withSkip} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				p := w.start()
				w.pause("a", time.Time{})
				ids := []weir.ID{w.post("a", "0", kind), w.post("a", "1", kind),
					w.post("a", "2", kind)}
				p.Wake(0)
				time.Sleep(time.Minute)

				for _, i := range []int{0, 2} {
					if _, err := w.store.Requests().Cancel(t.Context(), ids[i]); err != nil {
						t.Fatal(err)
					}
				}

				p.Wake(0)
				time.Sleep(time.Minute)

				if a, b := w.status(ids[0]).Stage, w.status(ids[2]).Stage; a != weir.Cancelled ||
					b != weir.Cancelled {
					t.Errorf("messages 0 and 2 are %s and %s, want both cancelled", a, b)
				}

				w.resume(p, "a")
				w.waitUntilEmpty(time.Minute)
				if got := w.listDelivered("a"); fmt.Sprint(got) != "[1]" {
					t.Errorf("delivered %v, want [1]", got)
				}
			})
		})
	}
}

// TestPause_CostsNothing checks that a process makes no request to storage while all waiting
// messages are paused.
func TestPause_CostsNothing(t *testing.T) {
	for name, key := range map[string]string{"Lane": "", "Key": "a"} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				p := w.start()
				w.pause(key, time.Time{})
				w.post("a", "1")
				p.Wake(0)
				time.Sleep(time.Minute)
				var calls atomic.Int64
				p.faults.Set(func(storagetest.Call) storagetest.Fault { calls.Add(1); return storagetest.Fault{} })
				time.Sleep(12 * time.Hour)
				if n := calls.Load(); n > 0 {
					t.Errorf("%d calls of storage, want 0", n)
				}

				w.resume(p, key)
				w.waitUntilEmpty(time.Minute)
			})
		})
	}
}

// nights is a calendar that is closed in the last ten minutes of each hour.
type nights struct{}

func (nights) At(t time.Time) (bool, string, time.Time) {
	hour := t.Truncate(time.Hour)
	if t.Sub(hour) < 50*time.Minute {
		return false, "", time.Time{}
	}
	return true, "night", hour.Add(time.Hour)
}

func TestCalendar(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(10*time.Second, 200))
		p := w.start(func(c *drain.Config) { c.Calendar = nights{} })
		due := time.Now().Truncate(time.Hour).Add(2*time.Hour + 55*time.Minute)
		w.post("due", "due", func(m *weir.Message) { m.DueAt = due })
		for i := range 1000 {
			w.post(fmt.Sprint(i), fmt.Sprint(i))
		}

		p.Wake(0)
		w.waitUntilEmpty(5 * time.Hour)
		at := map[string]time.Time{}
		for _, s := range w.cms.listRequests() {
			at[s.body] = s.at
			if closed, _, _ := (nights{}).At(s.at); closed {
				t.Errorf("%s was sent at %s, want it outside the closed time", s.body, s.at)
			}
		}

		for hour := range 2 { // the holder sends messages again as soon as the calendar opens
			opens := due.Truncate(time.Hour).Add(time.Duration(hour-1) * time.Hour)
			if got := w.listSentBetween(opens, opens.Add(20*time.Second)); len(got) == 0 {
				t.Errorf("nothing was sent within 20s of the opening at %s, want some", opens)
			}
		}

		if late := at["due"].Sub(due.Truncate(time.Hour).Add(time.Hour)); late < 0 ||
			late > 20*time.Second {
			t.Errorf("the message that became due in the closed time was sent %s after its end, want 0 to 20s", late)
		}

		if n := len(w.cms.listRequests()); n != 1001 {
			t.Errorf("%d requests, want 1001", n)
		}
	})
}

// A process grants requests within seconds, even if the calendar is closed.
func TestCalendar_RequestsAreGranted(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 51*time.Minute)))
		p := w.start(func(c *drain.Config) { c.Calendar = nights{} })
		id := w.post("a", "1")
		p.Wake(0)
		time.Sleep(10 * time.Second)
		if _, err := w.store.Requests().Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}

		p.Wake(0)
		time.Sleep(5 * time.Second)
		if st := w.status(id); st.Stage != weir.Cancelled {
			t.Errorf("got %+v, want Stage cancelled", st)
		}
	})
}
