package drain_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/drain"
)

// A message becomes due while no process can send messages. Afterwards the key's messages are sent
// in this order: the messages that were accepted before the due time, the due message, and the
// messages that were accepted later.
func TestDuePosition_OfOverdueMessages(t *testing.T) {
	unavailable := func(w *world) { w.cms.setAnswer(answerAfter(time.Millisecond, 503)) }
	for name, c := range map[string]struct {
		stops func(w *world)
		goes  func(w *world, p *process)
		other []func(*drain.Config)
	}{
		"LanePaused": {stops: func(w *world) { w.pause("", time.Time{}) },
			goes: func(w *world, p *process) { w.resume(p, "") }},
		"CalendarClosed": {stops: func(*world) {}, goes: func(*world, *process) {},
			other: []func(*drain.Config){func(c *drain.Config) {
				c.Calendar = closedUntil(time.Now().
					Add(2 * time.Hour))
			}}},
		"CMSAway": {stops: unavailable, goes: func(w *world, _ *process) {
			w.cms.setAnswer(answerAfter(time.Millisecond,
				200))
		}},
		"NoProcess": {stops: func(*world) {}, goes: func(*world, *process) {}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				file := func(bodies ...string) {
					for _, body := range bodies {
						w.post("a", body)
						w.post("b", "of b, "+body)
					}
				}

				file("1")
				var p *process
				if name != "NoProcess" {
					p = w.start(c.other...)
					p.Wake(0)
				}

				c.stops(w)
				known := time.Now().Add(10 * time.Minute)
				w.post("a", "due, known before", withDueTime(known))
				time.Sleep(5 * time.Minute)
				w.post("a", "due, filed meanwhile", withDueTime(time.Now().Add(20*time.Minute)))
				file("2")
				time.Sleep(10 * time.Minute)
				file("3", "4", "5", "6", "7")
				time.Sleep(30 * time.Minute)
				file("8", "9")
				if p == nil {
					p = w.start()
				}

				c.goes(w, p)
				p.Wake(0)
				w.waitUntilEmpty(3 * time.Hour)

				if got := w.listDelivered("a"); fmt.Sprint(got) !=
					"[1 2 due, known before 3 4 5 6 7 due, filed "+
						"meanwhile 8 9]" {
					t.Errorf("delivered %q, want %v", got,
						"[1 2 due, known before 3 4 5 6 7 due, filed "+"meanwhile 8 9]")
				}
			})
		})
	}
}

// closedUntil is a drain.Calendar that is closed before this time.
type closedUntil time.Time

func (c closedUntil) At(t time.Time) (bool, string, time.Time) {
	return t.Before(time.Time(c)), "test", time.Time(c)
}

// A scheduled message is sent before messages of its key that were accepted after its due time,
// even if the holder still works on a backlog of another key.
func TestDuePosition_BehindABacklog(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(time.Second, 200))
		p := w.start()
		p.Wake(0)
		for i := range 600 {
			w.post("b", fmt.Sprint("b", i))
		}

		w.post("a", "due", withDueTime(time.Now().Add(10*time.Second)))
		time.Sleep(time.Minute)
		w.post("a", "newer")
		p.Wake(0)
		w.waitUntilEmpty(time.Hour)
		if got := w.listDelivered("a"); fmt.Sprint(got) != "[due newer]" {
			t.Errorf("delivered %v, want [due newer]", got)
		}
	})
}

// The first process starts long after the due time, and finds the scheduled message only when it
// reads the log. It still sends the scheduled message before later messages of the key.
func TestDuePosition_KnownFromTheLogAlone(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.post("a", "due", withDueTime(time.Now().Add(time.Minute)))
		time.Sleep(time.Hour)
		w.post("a", "newer")
		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); fmt.Sprint(got) != "[due newer]" {
			t.Errorf("delivered %v, want [due newer]", got)
		}
	})
}

// After a crash the next holder does not know which messages of the log were sent, so it treats all
// of them as sent. It therefore sends the due message last, although the other message of the key
// was accepted after the due time.
func TestDuePosition_BehindRequestsOfADeadHolder(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		w.post("b", "b")
		p.Wake(0)
		time.Sleep(time.Second)
		p.kill()
		w.post("a", "due", withDueTime(time.Now().Add(time.Second)))
		time.Sleep(2 * time.Second)
		w.post("a", "maybe sent")
		time.Sleep(time.Minute)
		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); fmt.Sprint(got) != "[maybe sent due]" {
			t.Errorf("delivered %v, want [maybe sent due]", got)
		}
	})
}

// A key is paused, and its messages are held. A due message of the key is sent after the held
// messages that were accepted before its due time, and before the held messages that were accepted
// later.
func TestDuePosition_AmongParkedMessages(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		w.pause("a", time.Time{})
		w.post("a", "1")
		p.Wake(0)
		time.Sleep(time.Minute)
		w.pause("", time.Time{})
		w.post("a", "due", withDueTime(time.Now().Add(time.Minute)))
		time.Sleep(10 * time.Minute)
		w.post("a", "2")
		w.resume(p, "a")
		time.Sleep(time.Minute)
		w.resume(p, "")
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); fmt.Sprint(got) != "[1 due 2]" {
			t.Errorf("delivered %v, want [1 due 2]", got)
		}
	})
}

// Two messages of a key are scheduled. First the holder gives a position to the message with the
// later due time. Only then does the holder read the message with the earlier due time. The message
// with the earlier due time is still sent first.
func TestDuePosition_BeforeMovedMessages(t *testing.T) {
	for key, want := range map[string]string{"a": "[due newer known before]",
		"c": "[due known before]"} {
		t.Run(key, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.cms.setAnswer(answerAfter(500*time.Millisecond, 200))
				p := w.start()
				w.post("c", "the first", withDueTime(time.Now().Add(time.Second)))
				w.post("a", "known before", withDueTime(time.Now().Add(time.Minute)))
				p.Wake(0)

				// the holder has read the due times of these two messages
				time.Sleep(2 * time.Second)
				for i := range 400 {
					w.post("b", fmt.Sprint("b", i))
				}

				// The holder reads this message only after the message "known before" has got its
				// position.
				w.post("a", "due", withDueTime(time.Now().Add(20*time.Second)))
				p.Wake(0)
				time.Sleep(30 * time.Second)
				w.post(key, "newer")
				w.waitUntilEmpty(time.Hour)
				if got := w.listDelivered("a"); fmt.Sprint(got) != want {
					t.Errorf("delivered %q, want %v", got, want)
				}
			})
		})
	}
}

// A key is paused, and a newer message of the key is held. An overdue message of the key is sent
// before the newer message, although both messages have onFailure: skip.
func TestDuePosition_WithSkippedFailures(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		w.pause("a", time.Time{})
		due := w.post("a", "due", withSkip, withDueTime(time.Now().Add(time.Hour)))
		p.Wake(0)
		time.Sleep(10 * time.Second)
		w.post("a", "newer", withSkip)
		p.Wake(0)
		time.Sleep(10 * time.Second)
		if _, err := w.store.Requests().Reschedule(t.Context(), due, time.Now().Add(-15*time.Second), ""); err != nil {
			t.Fatal(err)
		}

		p.Wake(0)
		time.Sleep(10 * time.Second)
		w.resume(p, "a")
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); fmt.Sprint(got) != "[due newer]" {
			t.Errorf("delivered %v, want [due newer]", got)
		}
	})
}

// While the CMS refuses messages, the lane pauses, and the holder puts the messages off to the end
// of the pause. With onFailure: skip the messages of a key still keep their order, also those that
// become due during the pause.
func TestDuePosition_WhileTheCMSRefuses(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(20*time.Millisecond, 403))
		w.post("a", "first", withSkip)
		want := []string{"first"}
		for i := range 60 {
			want = append(want, fmt.Sprint(i))
			w.post("a", want[i+1], withSkip,
				withDueTime(time.Now().Add(time.Duration(i+1)*700*time.Millisecond)))
		}

		p := w.start(withDefaultBackoff)
		for range 60 {
			p.Wake(0)
			time.Sleep(10 * time.Second)
		}

		w.cms.setAnswer(answerAfter(20*time.Millisecond, 200))

		for range 60 {
			p.Wake(0)
			time.Sleep(10 * time.Second)
		}

		if got := w.listDelivered("a"); !slices.Equal(got, want) {
			t.Errorf("delivered %q, want %q", got, want)
		}
	})
}
