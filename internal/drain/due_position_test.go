package drain_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/drain"
)

// What falls due where nobody can send it goes, in the end, before what was filed of its key
// after its moment, and behind what was filed before it.
func TestPlaces_OfWhatFellDueLate(t *testing.T) {
	unavailable := func(w *world) { w.cms.set(takes(time.Millisecond, 503)) }
	for name, c := range map[string]struct {
		stops func(w *world)
		goes  func(w *world, p *process)
		other []func(*drain.Config)
	}{
		"LanePaused": {stops: func(w *world) { w.pause("", time.Time{}) },
			goes: func(w *world, p *process) { w.resume(p, "") }},
		"CalendarClosed": {stops: func(*world) {}, goes: func(*world, *process) {},
			other: []func(*drain.Config){func(c *drain.Config) { c.Calendar = closedUntil(time.Now().Add(2 * time.Hour)) }}},
		"CMSAway":     {stops: unavailable, goes: func(w *world, _ *process) { w.cms.set(takes(time.Millisecond, 200)) }},
		"NobodyThere": {stops: func(*world) {}, goes: func(*world, *process) {}},
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
				if name != "NobodyThere" {
					p = w.start(c.other...)
					p.Wake(0)
				}
				c.stops(w)
				known := time.Now().Add(10 * time.Minute)
				w.post("a", "due, known before", due(known))
				time.Sleep(5 * time.Minute)
				w.post("a", "due, filed meanwhile", due(time.Now().Add(20*time.Minute)))
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
				w.settled(3 * time.Hour)
				if got := w.delivered("a"); fmt.Sprint(got) != "[1 2 due, known before 3 4 5 6 7 due, filed meanwhile 8 9]" {
					t.Errorf("delivered %q", got)
				}
			})
		})
	}
}

// closedUntil is a calendar that opens at a moment.
type closedUntil time.Time

func (c closedUntil) At(t time.Time) (bool, string, time.Time) {
	return t.Before(time.Time(c)), "test", time.Time(c)
}

// A backlog that is longer than a message's delay does not put it behind what came after it.
func TestPlaces_BehindABacklog(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(takes(time.Second, 200))
		p := w.start()
		p.Wake(0)
		for i := range 600 {
			w.post("b", fmt.Sprint("b", i))
		}
		w.post("a", "due", due(time.Now().Add(10*time.Second)))
		time.Sleep(time.Minute)
		w.post("a", "newer")
		p.Wake(0)
		w.settled(time.Hour)
		if got := w.delivered("a"); fmt.Sprint(got) != "[due newer]" {
			t.Errorf("delivered %v", got)
		}
	})
}

// What the log tells of it first, together with what comes after it, goes first all the same.
func TestPlaces_KnownFromTheLogAlone(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.post("a", "due", due(time.Now().Add(time.Minute)))
		time.Sleep(time.Hour)
		w.post("a", "newer")
		w.start().Wake(0)
		w.settled(time.Minute)
		if got := w.delivered("a"); fmt.Sprint(got) != "[due newer]" {
			t.Errorf("delivered %v", got)
		}
	})
}

// What may have been sent is never overtaken: a holder that died may have sent all there was.
func TestPlaces_BehindWhatADeadHolderMayHaveSent(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		w.post("b", "b")
		p.Wake(0)
		time.Sleep(time.Second)
		p.kill()
		w.post("a", "due", due(time.Now().Add(time.Second)))
		time.Sleep(2 * time.Second)
		w.post("a", "maybe sent")
		time.Sleep(time.Minute)
		w.start().Wake(0)
		w.settled(time.Minute)
		if got := w.delivered("a"); fmt.Sprint(got) != "[maybe sent due]" {
			t.Errorf("delivered %v", got)
		}
	})
}

// A place is looked for also in front of what a paused key's line has got from the log.
func TestPlaces_InALineThatWasShelved(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		w.pause("a", time.Time{})
		w.post("a", "1")
		p.Wake(0)
		time.Sleep(time.Minute)
		w.pause("", time.Time{})
		w.post("a", "due", due(time.Now().Add(time.Minute)))
		time.Sleep(10 * time.Minute)
		w.post("a", "2")
		w.resume(p, "a")
		time.Sleep(time.Minute)
		w.resume(p, "")
		w.settled(time.Minute)
		if got := w.delivered("a"); fmt.Sprint(got) != "[1 due 2]" {
			t.Errorf("delivered %v", got)
		}
	})
}

// A place is looked for also in front of what fell due before, and waits in memory for the
// log to be read: whether or not the log has something of its key in between.
func TestPlaces_InFrontOfWhatWasReleased(t *testing.T) {
	for key, want := range map[string]string{"a": "[due newer known before]", "c": "[due known before]"} {
		t.Run(key, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.cms.set(takes(500*time.Millisecond, 200))
				p := w.start()
				w.post("c", "the first", due(time.Now().Add(time.Second)))
				w.post("a", "known before", due(time.Now().Add(time.Minute)))
				p.Wake(0)
				time.Sleep(2 * time.Second) // the holder knows now of all that is scheduled
				for i := range 400 {
					w.post("b", fmt.Sprint("b", i))
				}
				w.post("a", "due", due(time.Now().Add(20*time.Second))) // read when the other was released
				p.Wake(0)
				time.Sleep(30 * time.Second)
				w.post(key, "newer")
				w.settled(time.Hour)
				if got := w.delivered("a"); fmt.Sprint(got) != want {
					t.Errorf("delivered %q", got)
				}
			})
		})
	}
}

// Where failures are skipped, too: what fell due late goes before a newer message that was
// put aside from the log.
func TestPlaces_WhereFailuresAreSkipped(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		w.pause("a", time.Time{})
		due := w.post("a", "due", skip, due(time.Now().Add(time.Hour)))
		p.Wake(0)
		time.Sleep(10 * time.Second)
		w.post("a", "newer", skip)
		p.Wake(0)
		time.Sleep(10 * time.Second)
		if _, err := w.store.Reschedule(t.Context(), due, time.Now().Add(-15*time.Second), ""); err != nil {
			t.Fatal(err)
		}
		p.Wake(0)
		time.Sleep(10 * time.Second)
		w.resume(p, "a")
		w.settled(time.Minute)
		if got := w.delivered("a"); fmt.Sprint(got) != "[due newer]" {
			t.Errorf("delivered %v", got)
		}
	})
}

// Where failures are skipped, what is put off while the CMS refuses its key keeps its order: some
// of it fell due before that, some after.
func TestPlaces_PutOffWhileTheCMSRefuses(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(takes(20*time.Millisecond, 403))
		w.post("a", "first", skip)
		want := []string{"first"}
		for i := range 60 {
			want = append(want, fmt.Sprint(i))
			w.post("a", want[i+1], skip, due(time.Now().Add(time.Duration(i+1)*700*time.Millisecond)))
		}
		p := w.start(defaults)
		for range 60 {
			p.Wake(0)
			time.Sleep(10 * time.Second)
		}
		w.cms.set(takes(20*time.Millisecond, 200))
		for range 60 {
			p.Wake(0)
			time.Sleep(10 * time.Second)
		}
		if got := w.delivered("a"); !slices.Equal(got, want) {
			t.Errorf("delivered %q, want %q", got, want)
		}
	})
}
