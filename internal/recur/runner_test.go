package recur_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/recur"
	"weir/internal/storage/storagetest"
)

// In a bubble it is 2000-01-01T00:00:00Z at first.

func TestRunner_OncePerOccurrence(t *testing.T) {
	t.Run("FourProcesses", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.put(w.process("a", 0), "s", definition("@every 1s"))
			for _, actor := range []string{"b", "c", "d"} {
				w.started(actor)
			}
			pass(199*time.Second + 500*time.Millisecond)
			w.everySecond(200)
			for _, f := range w.messages() {
				if ahead := due(t, f).Sub(f.At); ahead < 950*time.Millisecond || ahead > time.Second ||
					!f.DueAt.Equal(due(t, f)) {
					t.Errorf("%s was filed %s before it was due, for %s", f.Due, ahead, f.DueAt)
				}
			}
			if s := w.get("s"); s.Filed != 200 || s.State.Missed != 0 || s.Skipped != 0 {
				t.Errorf("got %+v, want s.Filed == 200 && s.State.Missed == 0 && s.Skipped == 0", s.State)
			}
		})
	})
	t.Run("TheOthersFindItDone", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.put(w.process("a", 0), "s", definition("@every 1m"))
			calls := map[string]int{}
			w.faults.Set(func(c storagetest.Call) storagetest.Fault {
				calls[c.Actor+" "+c.Op]++
				return storagetest.Fault{}
			})
			b := w.started("b")
			for range 10 { // sweeps
				pass(59500 * time.Millisecond)
				if err := b.Load(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			pass(time.Minute)
			if calls["b Transact"] != 0 || calls["b Get"] > 11 || len(w.messages()) < 9 {
				t.Errorf("%d messages, %v", len(w.messages()), calls)
			}
		})
	})
	t.Run("AFollowerTakesOver", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			a := w.process("a", 0)
			w.put(a, "s", definition("@every 1m"))
			w.started("b")
			pass(90 * time.Second)
			a.Close(t.Context())
			pass(2 * time.Minute)
			got := w.messages()
			if len(got) != 3 {
				t.Fatalf("got %+v, want len(got) == 3", got)
			}
			for i, most := range []time.Duration{0, 100 * time.Millisecond, 25 * time.Millisecond} {
				if late := got[i].At.Add(time.Second).Sub(due(t, got[i])); late < 0 || late > most ||
					!got[i].DueAt.Equal(due(t, got[i])) {
					t.Errorf("message %d was filed %s late", i, late)
				}
			}
		})
	})
	t.Run("WhatIsDueInCenturiesIsLeftAlone", func(t *testing.T) { // a time.Duration holds 292 years
		simulate(t, func(t *testing.T, w *world) {
			w.put(w.process("a", 0), "s", definition("@daily",
				func(d *recur.Definition) { d.Start = time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC) }))
			looks := 0
			w.faults.Set(func(c storagetest.Call) storagetest.Fault {
				if c.Actor != "b" || c.Op != "Get" {
					return storagetest.Fault{}
				}
				looks++
				return storagetest.Fault{Kind: storagetest.FailBefore}
			})
			w.started("b")
			pass(time.Hour)
			if looks > 0 {
				t.Errorf("it was looked at %d times in an hour", looks)
			}
		})
	})
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("FourProcessesOnBadStorage%d", seed), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) { w.badStorage(seed) })
		})
	}
}

// badStorage runs four processes with clocks of their own over storage that fails now and
// then before, after or late, and has one of them start anew all the time.
func (w *world) badStorage(seed uint64) {
	w.t.Helper()
	dice := rand.New(rand.NewPCG(seed, 1))
	all := func(d *recur.Definition) { d.Missed = recur.All }
	w.put(w.process("a", 0), "s", definition("@every 1s", all))
	w.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if dice.IntN(10) > 0 {
			return storagetest.Fault{}
		}
		return storagetest.Fault{Kind: []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter,
			storagetest.Late}[dice.IntN(3)], Delay: time.Duration(dice.IntN(3000)) * time.Millisecond}
	})
	for i, actor := range []string{"b", "c", "d"} {
		// The sweep makes good for a first look that failed.
		_ = w.process(actor, time.Duration(i-1)*2*time.Second).Load(w.t.Context())
	}
	for i := range 10 {
		r := w.process(fmt.Sprint("e", i), 0)
		_ = r.Load(w.t.Context())
		pass(10 * time.Second)
		go r.Close(w.t.Context())
	}
	w.faults.Set(nil)
	w.started("f")
	pass(20 * time.Second)
	w.faults.Wait()
	w.onceEach()
	if s := w.get("s"); s.Filed < 120 || s.State.Missed != 0 || s.Refused != 0 || int(s.Filed) != len(w.messages()) {
		w.t.Errorf("%d messages, %+v", len(w.messages()), s.State)
	}
}

// everySecond holds that each second of the first n has one message, numbered in order.
func (w *world) everySecond(n int) {
	w.t.Helper()
	w.onceEach()
	byDue := map[string]int{}
	for _, f := range w.messages() {
		byDue[f.Due] = f.Run
	}
	for i := range n {
		at := time.Date(2000, 1, 1, 0, 0, i+1, 0, time.UTC).Format(time.RFC3339)
		if byDue[at] != i+1 {
			w.t.Errorf("%s has run %d, want %d", at, byDue[at], i+1)
		}
	}
	if len(byDue) != n {
		w.t.Errorf("%d occurrences, want %d", len(byDue), n)
	}
}

func (w *world) onceEach() {
	w.t.Helper()
	dues, runs := map[string]int{}, map[int]int{}
	for _, f := range w.messages() {
		dues[f.Due]++
		runs[f.Run]++
		if dues[f.Due] > 1 || runs[f.Run] > 1 {
			w.t.Errorf("%s is there %d times, run %d %d times", f.Due, dues[f.Due], f.Run, runs[f.Run])
		}
	}
}

func due(t *testing.T, f filed) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, f.Due)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestRunner_CrashBetweenAppendAndMove(t *testing.T) {
	for name, kind := range map[string]storagetest.FaultKind{"TheMoveIsLost": storagetest.FailBefore,
		"TheMoveWasDone": storagetest.FailAfter, "TheMoveArrivesLate": storagetest.Late} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.put(w.process("a", 0), "s", definition("@every 1h"))
				dead := false
				w.faults.Set(func(c storagetest.Call) storagetest.Fault {
					switch {
					case c.Actor != "a":
						return storagetest.Fault{}
					case dead:
						return storagetest.Fault{Kind: storagetest.FailBefore}
					case isMove(c):
						dead = true
						return storagetest.Fault{Kind: kind, Delay: 3 * time.Second}
					}
					return storagetest.Fault{}
				})
				pass(time.Hour)
				if got := w.dues(); got != "01:00:00Z" {
					t.Fatalf("filed: %s", got)
				}
				pass(2 * time.Second)
				w.started("b")
				pass(time.Hour)
				if s := w.get("s"); w.dues() != "01:00:00Z 02:00:00Z" || s.Filed != 2 || s.Last.Run != 2 ||
					s.Last.MessageID == "" {
					t.Errorf("filed %s, %+v", w.dues(), s.State)
				}
			})
		})
	}
}

func TestRunner_Missed(t *testing.T) {
	for name, c := range map[string]struct {
		missed recur.Missed
		down   time.Duration
		dues   string
		lost   int64
	}{
		"One": {recur.One, 140 * time.Minute, "00:30:00Z 02:30:00Z 03:30:00Z",
			1}, // 01:30 is made up for by 02:30's
		"All":            {recur.All, 140 * time.Minute, "00:30:00Z 01:30:00Z 02:30:00Z 03:30:00Z", 0},
		"None":           {recur.None, 140 * time.Minute, "00:30:00Z 03:30:00Z", 2},
		"OneOfOne":       {recur.One, 45 * time.Minute, "00:30:00Z 01:30:00Z 02:30:00Z 03:30:00Z", 0},
		"NoneAShortTime": {recur.None, 30*time.Minute + 9*time.Second, "00:30:00Z 01:30:00Z 02:30:00Z 03:30:00Z", 0},
		"NoneALongTime":  {recur.None, 30*time.Minute + 11*time.Second, "00:30:00Z 02:30:00Z 03:30:00Z", 1},
		"OneOfVeryMany":  {recur.One, 0, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if c.dues == "" {
				simulate(t, afterTenYears)
				return
			}
			simulate(t, func(t *testing.T, w *world) {
				a := w.process("a", 0)
				w.put(a, "s", definition("30 * * * *", func(d *recur.Definition) { d.Missed = c.missed }))
				pass(time.Hour)
				a.Close(t.Context())
				pass(c.down)
				w.started("b")
				w.started("c")
				pass(4*time.Hour - time.Minute - time.Hour - c.down)
				if s := w.get("s"); w.dues() != c.dues || s.State.Missed != c.lost {
					t.Errorf("filed %s, missed %d; want %s, %d", w.dues(), s.State.Missed, c.dues, c.lost)
				}
			})
		})
	}
}

func afterTenYears(t *testing.T, w *world) {
	a := w.process("a", 0)
	w.put(a, "every", definition("@every 1s"))
	w.put(a, "cron", definition("* * * * * *"))
	a.Close(t.Context())
	pass(10 * 365 * 24 * time.Hour)
	now := time.Now().Add(time.Second).UTC().Format(time.RFC3339) // filed ahead, it makes up for the others
	w.started("b")
	pass(0)
	got := w.messages()
	if len(got) != 2 || got[0].Due != now || got[1].Due != now {
		t.Errorf("at %s: %v", now, got)
	}
	if s := w.get("every"); s.State.Missed != 10*365*24*3600 {
		t.Errorf("got %+v, want s.State.Missed == 10 * 365 * 24 * 3600", s.State)
	}
}

// With One, a crash after the message was filed must not lead to a second one, though more
// has been missed meanwhile.
func TestRunner_MissedOneCrash(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a := w.process("a", 0)
		w.put(a, "s", definition("@every 1m"))
		a.Close(t.Context())
		pass(90 * time.Minute)
		moves := 0
		w.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Actor == "b" && isMove(c) {
				moves++
			}
			if c.Actor == "b" && moves > 1 { // after the mark, and after the message
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})
		b := w.started("b")
		pass(time.Second)
		b.Close(t.Context())
		pass(30 * time.Minute)
		w.started("c")
		pass(0)
		if got := w.dues(); got != "01:30:00Z 02:00:00Z" {
			t.Errorf("filed %s: one for each time nothing ran", got)
		}
	})
}

func TestRunner_Overlap(t *testing.T) {
	skip := func(d *recur.Definition) { d.Overlap = recur.Skip }
	t.Run("Skip", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.put(w.process("a", 0), "s", definition("@every 1h", skip))
			w.started("b")
			pass(3 * time.Hour)
			if s := w.get("s"); w.dues() != "01:00:00Z" || s.Skipped != 2 || s.SkippedAt.Format("15:04") != "03:00" ||
				s.NextRun != 2 {
				t.Errorf("filed %s, %+v", w.dues(), s.State)
			}
			w.final.Store(true)
			pass(2 * time.Hour)
			if s := w.get("s"); w.dues() != "01:00:00Z 04:00:00Z 05:00:00Z" || s.Skipped != 2 || s.Last.Run != 3 {
				t.Errorf("filed %s, %+v", w.dues(), s.State)
			}
		})
	})
	t.Run("OneSkipsWhatAnotherHasFiled", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.final.Store(true)
			w.blind = "" // the one without faults
			w.put(w.process("b", 0), "s", definition("@every 1h", skip))
			pass(time.Hour)
			other, done := w.process("", 0), false
			w.faults.Set(func(c storagetest.Call) storagetest.Fault {
				if !done && isMove(c) { // b has filed the second one
					done = true
					w.put(other, "s", definition("@every 1h", skip,
						func(d *recur.Definition) { d.End = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC) }))
					if s := w.get("s"); s.Skipped != 1 {
						t.Errorf("got %+v, want s.Skipped == 1", s.State)
					}
				}
				return storagetest.Fault{}
			})
			pass(time.Hour)
			if s := w.get("s"); s.Filed != 2 || s.Skipped != 0 || s.Last.DueAt.Format("15:04") != "02:00" ||
				s.NextRun != 3 {
				t.Errorf("got %+v, want s.Filed == 2 && s.Skipped == 0 && "+
					"s.Last.DueAt.Format(\"15:04\") == \"02:00\" && s.NextRun == 3", s.State)
			}
		})
	})
	t.Run("Queue", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.put(w.process("a", 0), "s", definition("@every 1h"))
			pass(3 * time.Hour)
			if s := w.get("s"); s.Filed != 3 || s.Skipped != 0 {
				t.Errorf("got %+v, want s.Filed == 3 && s.Skipped == 0", s.State)
			}
		})
	})
}

func TestRunner_StartEndPause(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a := w.process("a", 0)
		began := time.Now()
		w.put(a, "s", definition("@every 1h", func(d *recur.Definition) {
			d.Start, d.End = began.Add(90*time.Minute), began.Add(330*time.Minute)
		}))
		pass(10 * time.Hour)
		if s := w.get("s"); w.dues() != "01:30:00Z 02:30:00Z 03:30:00Z 04:30:00Z" || !s.NextAt.IsZero() {
			t.Errorf("filed %s, next %s", w.dues(), s.NextAt)
		}
		w.put(a, "p", definition("0 * * * *"))
		pass(30 * time.Minute)
		paused := w.put(a, "p", definition("0 * * * *", func(d *recur.Definition) { d.Paused = true }))
		if !paused.NextAt.IsZero() {
			t.Errorf("paused, and next at %s", paused.NextAt)
		}
		pass(3 * time.Hour)
		w.put(a, "p", definition("0 * * * *"))
		pass(time.Hour)
		if s := w.get("p"); s.Filed != 1 || s.State.Missed != 0 || s.Last.DueAt.Format("15:04") != "14:00" {
			t.Errorf("what fell into the pause must not be made up for: %+v", s.State)
		}
	})
}
