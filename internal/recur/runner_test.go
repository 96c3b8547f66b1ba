package recur_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/recur"
	"weir/internal/storage/storagetest"
)

// The clock of each test begins at 2000-01-01T00:00:00Z, because testing/synctest begins there.

func TestRunner_OncePerOccurrence(t *testing.T) {
	t.Run("FourProcesses", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.putSchedule(w.newRunner("a", 0), "s", newDefinition("@every 1s"))
			for _, actor := range []string{"b", "c", "d"} {
				w.startRunner(actor)
			}

			passTime(199*time.Second + 500*time.Millisecond)
			w.checkEachSecond(200)

			for _, f := range w.listMessages() {
				if ahead := parseDue(t, f).Sub(f.At); ahead < 950*time.Millisecond ||
					ahead > time.Second ||
					!f.DueAt.Equal(parseDue(t, f)) {
					t.Errorf("occurrence %s was filed %s ahead with the due time %s, want 0.95s to 1s ahead with its "+
						"own due time", f.Due, ahead, f.DueAt)
				}
			}

			if s := w.getSchedule("s"); s.Filed != 200 || s.State.Missed != 0 || s.Skipped != 0 {
				t.Errorf("got %+v, want Filed 200, Missed 0 and Skipped 0", s.State)
			}
		})
	})

	// Process a appends each occurrence. Process b only reads the row of the schedule.
	t.Run("AFollowerOnlyReads", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.putSchedule(w.newRunner("a", 0), "s", newDefinition("@every 1m"))
			calls := map[string]int{}
			w.faults.Set(func(c storagetest.Call) storagetest.Fault {
				calls[c.Actor+" "+c.Op]++
				return storagetest.Fault{}
			})

			b := w.startRunner("b")
			for range 10 { // sweeps
				passTime(59500 * time.Millisecond)
				if err := b.Load(t.Context()); err != nil {
					t.Fatal(err)
				}
			}

			passTime(time.Minute)

			if calls["b Transact"] != 0 || calls["b Get"] > 11 || len(w.listMessages()) < 9 {
				t.Errorf("got %d messages and the calls %v; want at least 9 messages, and of b no write and at most "+
					"11 reads", len(w.listMessages()), calls)
			}
		})
	})

	t.Run("AFollowerTakesOver", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			a := w.newRunner("a", 0)
			w.putSchedule(a, "s", newDefinition("@every 1m"))
			w.startRunner("b")
			passTime(90 * time.Second)
			a.Close(t.Context())
			passTime(2 * time.Minute)
			got := w.listMessages()
			if len(got) != 3 {
				t.Fatalf("got the messages %+v, want 3", got)
			}

			for i, most := range []time.Duration{0, 100 * time.Millisecond, 25 * time.Millisecond} {
				if late := got[i].At.Add(time.Second).Sub(parseDue(t, got[i])); late < 0 ||
					late > most ||
					!got[i].DueAt.Equal(parseDue(t, got[i])) {
					t.Errorf("message %d was filed %s late with the due time %s, want at most %s late with the due "+
						"time %s", i, late, got[i].DueAt, most, got[i].Due)
				}
			}
		})
	})

	// The occurrence is 400 years away, but a time.Duration has at most 292 years.
	t.Run("OccurrenceInCenturiesIsLeftAlone", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.putSchedule(w.newRunner("a", 0), "s", newDefinition("@daily",
				func(d *recur.Definition) {
					d.Start = time.Date(2400, 1, 1, 0, 0, 0, 0,
						time.UTC)
				}))

			looks := 0
			w.faults.Set(func(c storagetest.Call) storagetest.Fault {
				if c.Actor != "b" || c.Op != "Get" {
					return storagetest.Fault{}
				}
				looks++
				return storagetest.Fault{Kind: storagetest.FailBefore}
			})

			w.startRunner("b")
			passTime(time.Hour)
			if looks > 0 {
				t.Errorf("b read the schedule %d times in an hour, want 0", looks)
			}
		})
	})

	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("FourProcessesOnBadStorage%d", seed), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) { w.runOnBadStorage(seed) })
		})
	}
}

// runOnBadStorage runs four processes whose clocks differ, and starts a further process every ten
// seconds. One in ten requests to storage fails: storage does not do the request, or does it and
// returns an error, or does it later.
func (w *world) runOnBadStorage(seed uint64) {
	w.t.Helper()
	dice := rand.New(rand.NewPCG(seed, 1))
	all := func(d *recur.Definition) { d.Missed = recur.All }
	w.putSchedule(w.newRunner("a", 0), "s", newDefinition("@every 1s", all))
	w.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if dice.IntN(10) > 0 {
			return storagetest.Fault{}
		}
		return storagetest.Fault{Kind: []storagetest.FaultKind{storagetest.FailBefore,
			storagetest.FailAfter,
			storagetest.Late}[dice.IntN(3)],
			Delay: time.Duration(dice.IntN(3000)) * time.Millisecond}
	})

	for i, actor := range []string{"b", "c", "d"} {
		// If Load fails in this process, other processes still run the schedule.
		_ = w.newRunner(actor, time.Duration(i-1)*2*time.Second).Load(w.t.Context())
	}

	for i := range 10 {
		r := w.newRunner(fmt.Sprint("e", i), 0)
		_ = r.Load(w.t.Context())
		passTime(10 * time.Second)
		go r.Close(w.t.Context())
	}

	w.faults.Set(nil)
	w.startRunner("f")
	passTime(20 * time.Second)
	w.faults.Wait()
	w.checkEachOnce()

	if s := w.getSchedule("s"); s.Filed < 120 || s.State.Missed != 0 || s.Refused != 0 ||
		int(s.Filed) != len(w.listMessages()) {
		w.t.Errorf("got %d messages, %+v, want at least 120 occurrences filed, each as one message, none missed or "+
			"refused", len(w.listMessages()), s.State)
	}
}

// checkEachSecond checks that there are n messages: run 1 for second 1, run 2 for second 2, and so
// on.
func (w *world) checkEachSecond(n int) {
	w.t.Helper()
	w.checkEachOnce()
	byDue := map[string]int{}
	for _, f := range w.listMessages() {
		byDue[f.Due] = f.Run
	}

	for i := range n {
		at := time.Date(2000, 1, 1, 0, 0, i+1, 0, time.UTC).Format(time.RFC3339)
		if byDue[at] != i+1 {
			w.t.Errorf("occurrence %s: got run %d, want %d", at, byDue[at], i+1)
		}
	}

	if len(byDue) != n {
		w.t.Errorf("got messages of %d occurrences, want %d", len(byDue), n)
	}
}

func (w *world) checkEachOnce() {
	w.t.Helper()
	dues, runs := map[string]int{}, map[int]int{}
	for _, f := range w.listMessages() {
		dues[f.Due]++
		runs[f.Run]++
		if dues[f.Due] > 1 || runs[f.Run] > 1 {
			w.t.Errorf("got %d messages of occurrence %s and %d messages of run %d, want at most one of each",
				dues[f.Due], f.Due, runs[f.Run], f.Run)
		}
	}
}

func parseDue(t *testing.T, f filed) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, f.Due)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestRunner_CrashBetweenAppendAndMove(t *testing.T) {
	for name, kind := range map[string]storagetest.FaultKind{
		"TheMoveIsLost":  storagetest.FailBefore,
		"TheMoveWasDone": storagetest.FailAfter, "TheMoveArrivesLate": storagetest.Late} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.putSchedule(w.newRunner("a", 0), "s", newDefinition("@every 1h"))
				dead := false
				w.faults.Set(func(c storagetest.Call) storagetest.Fault {
					switch {
					case c.Actor != "a":
						return storagetest.Fault{}
					case dead:
						return storagetest.Fault{Kind: storagetest.FailBefore}
					case writesRow(c):
						dead = true
						return storagetest.Fault{Kind: kind, Delay: 3 * time.Second}
					}

					return storagetest.Fault{}
				})

				passTime(time.Hour)
				if got := w.listDueTimes(); got != "01:00:00Z" {
					t.Fatalf("filed: %s, want 01:00:00Z", got)
				}

				passTime(2 * time.Second)
				w.startRunner("b")
				passTime(time.Hour)

				if s := w.getSchedule("s"); w.listDueTimes() != "01:00:00Z 02:00:00Z" ||
					s.Filed != 2 ||
					s.Last.Run != 2 ||
					s.Last.MessageID == "" {
					t.Errorf("filed %s, %+v, want due times \"01:00:00Z 02:00:00Z\", Filed 2, Run 2 and a MessageID",
						w.listDueTimes(), s.State)
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
		// At 01:00 the only process stops. Other processes start when the time "down" is over. In
		// the case "One", the occurrence at 02:30 is appended late, and the occurrence at 01:30
		// counts as missed.
		"One": {recur.One, 140 * time.Minute, "00:30:00Z 02:30:00Z 03:30:00Z", 1},
		"All": {recur.All, 140 * time.Minute,
			"00:30:00Z 01:30:00Z 02:30:00Z 03:30:00Z", 0},
		"None": {recur.None, 140 * time.Minute, "00:30:00Z 03:30:00Z", 2},
		"OneOfOne": {recur.One, 45 * time.Minute,
			"00:30:00Z 01:30:00Z 02:30:00Z 03:30:00Z", 0},
		"NoneAShortTime": {recur.None, 30*time.Minute + 9*time.Second,
			"00:30:00Z 01:30:00Z 02:30:00Z 03:30:00Z", 0},
		"NoneALongTime": {recur.None, 30*time.Minute + 11*time.Second,
			"00:30:00Z 02:30:00Z 03:30:00Z", 1},
		"OneOfVeryMany": {recur.One, 0, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if c.dues == "" {
				simulate(t, afterTenYears)
				return
			}

			simulate(t, func(t *testing.T, w *world) {
				a := w.newRunner("a", 0)
				w.putSchedule(a, "s",
					newDefinition("30 * * * *", func(d *recur.Definition) { d.Missed = c.missed }))
				passTime(time.Hour)
				a.Close(t.Context())
				passTime(c.down)
				w.startRunner("b")
				w.startRunner("c")
				passTime(4*time.Hour - time.Minute - time.Hour - c.down)

				if s := w.getSchedule("s"); w.listDueTimes() != c.dues || s.State.Missed != c.lost {
					t.Errorf("filed %s, missed %d; want %s, %d", w.listDueTimes(), s.State.Missed,
						c.dues, c.lost)
				}
			})
		})
	}
}

// The clock of a process is fast by a minute. It starts shortly before an occurrence is due, and
// must not count the occurrence as missed: the process with the right clock would not append it any
// more.
func TestRunner_AFastClockMissesNothing(t *testing.T) {
	for _, missed := range []recur.Missed{recur.None, recur.One, recur.All} {
		t.Run(string(missed), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.putSchedule(w.newRunner("a", 0), "s", newDefinition("30 * * * *",
					func(d *recur.Definition) { d.Missed = missed }))
				passTime(30*time.Minute - 10*time.Second)
				if err := w.newRunner("fast", time.Minute).Load(t.Context()); err != nil {
					t.Fatal(err)
				}

				passTime(time.Hour)
				const dues = "00:30:00Z 01:30:00Z"
				if s := w.getSchedule("s"); w.listDueTimes() != dues || s.State.Missed != 0 {
					t.Errorf("filed %s, missed %d; want %s, 0", w.listDueTimes(),
						s.State.Missed, dues)
				}
			})
		})
	}
}

func afterTenYears(t *testing.T, w *world) {
	a := w.newRunner("a", 0)
	w.putSchedule(a, "every", newDefinition("@every 1s"))
	w.putSchedule(a, "cron", newDefinition("* * * * * *"))
	a.Close(t.Context())
	passTime(10 * 365 * 24 * time.Hour)

	// a message is appended a second before its due time
	now := time.Now().Add(time.Second).UTC().Format(time.RFC3339)
	w.startRunner("b")
	passTime(0)
	got := w.listMessages()
	if len(got) != 2 || got[0].Due != now || got[1].Due != now {
		t.Errorf("at %s: got the messages %v, want two messages that are due at that time", now,
			got)
	}

	if s := w.getSchedule("every"); s.State.Missed != 10*365*24*3600 {
		t.Errorf("got %+v, want Missed %v", s.State, 10*365*24*3600)
	}
}

// Process b appends one message for all missed occurrences, and crashes before it records the
// message in the row. Further occurrences are missed before process c starts. Process c must find
// the message of b, and append one message for the further occurrences only.
func TestRunner_MissedOneCrash(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a := w.newRunner("a", 0)
		w.putSchedule(a, "s", newDefinition("@every 1m"))
		a.Close(t.Context())
		passTime(90 * time.Minute)
		moves := 0
		w.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Actor == "b" && writesRow(c) {
				moves++
			}

			// the first write precedes the append, the second follows it
			if c.Actor == "b" && moves > 1 {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}

			return storagetest.Fault{}
		})

		b := w.startRunner("b")
		passTime(time.Second)
		b.Close(t.Context())
		passTime(30 * time.Minute)
		w.startRunner("c")
		passTime(0)
		if got := w.listDueTimes(); got != "01:30:00Z 02:00:00Z" {
			t.Errorf("filed %s, want 01:30:00Z 02:00:00Z: one message by b and one by c", got)
		}
	})
}

func TestRunner_Overlap(t *testing.T) {
	skip := func(d *recur.Definition) { d.Overlap = recur.Skip }
	t.Run("Skip", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.putSchedule(w.newRunner("a", 0), "s", newDefinition("@every 1h", skip))
			w.startRunner("b")
			passTime(3 * time.Hour)

			if s := w.getSchedule("s"); w.listDueTimes() != "01:00:00Z" || s.Skipped != 2 ||
				s.SkippedAt.Format("15:04") != "03:00" ||
				s.NextRun != 2 {
				t.Errorf("filed %s, %+v, want 01:00:00Z, and 2 skipped until 03:00",
					w.listDueTimes(), s.State)
			}

			w.final.Store(true)
			passTime(2 * time.Hour)

			if s := w.getSchedule("s"); w.listDueTimes() != "01:00:00Z 04:00:00Z 05:00:00Z" ||
				s.Skipped != 2 ||
				s.Last.Run != 3 {
				t.Errorf("filed %s, %+v, want due times \"01:00:00Z 04:00:00Z 05:00:00Z\", Skipped 2 and Run 3",
					w.listDueTimes(), s.State)
			}
		})
	})

	t.Run("FiledByOneProcessAndSkippedByAnother", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.final.Store(true)

			// the other process, whose name is empty, does not see that messages are final
			w.blind = ""
			w.putSchedule(w.newRunner("b", 0), "s", newDefinition("@every 1h", skip))
			passTime(time.Hour)
			other, done := w.newRunner("", 0), false
			w.faults.Set(func(c storagetest.Call) storagetest.Fault {
				if !done && writesRow(c) { // b has appended the second occurrence
					done = true
					w.putSchedule(other, "s", newDefinition("@every 1h", skip,
						func(d *recur.Definition) {
							d.End = time.Date(9000, 1, 1, 0, 0, 0, 0,
								time.UTC)
						}))

					if s := w.getSchedule("s"); s.Skipped != 1 {
						t.Errorf("got %+v, want Skipped 1", s.State)
					}
				}

				return storagetest.Fault{}
			})

			passTime(time.Hour)

			if s := w.getSchedule("s"); s.Filed != 2 || s.Skipped != 0 ||
				s.Last.DueAt.Format("15:04") != "02:00" ||
				s.NextRun != 3 {
				t.Errorf("got %+v, want 2 filed, the last of 02:00, and none skipped", s.State)
			}
		})
	})

	t.Run("Queue", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.putSchedule(w.newRunner("a", 0), "s", newDefinition("@every 1h"))
			passTime(3 * time.Hour)
			if s := w.getSchedule("s"); s.Filed != 3 || s.Skipped != 0 {
				t.Errorf("got %+v, want Filed 3 and Skipped 0", s.State)
			}
		})
	})
}

func TestRunner_StartEndPause(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a := w.newRunner("a", 0)
		began := time.Now()
		w.putSchedule(a, "s", newDefinition("@every 1h", func(d *recur.Definition) {
			d.Start, d.End = began.Add(90*time.Minute), began.Add(330*time.Minute)
		}))
		passTime(10 * time.Hour)

		if s := w.getSchedule("s"); w.listDueTimes() != "01:30:00Z 02:30:00Z 03:30:00Z 04:30:00Z" ||
			!s.NextAt.IsZero() {
			t.Errorf("filed %s, next %s, want due times \"01:30:00Z 02:30:00Z 03:30:00Z 04:30:00Z\" and no NextAt",
				w.listDueTimes(), s.NextAt)
		}

		w.putSchedule(a, "p", newDefinition("0 * * * *"))
		passTime(30 * time.Minute)
		paused := w.putSchedule(a, "p",
			newDefinition("0 * * * *", func(d *recur.Definition) { d.Paused = true }))
		if !paused.NextAt.IsZero() {
			t.Errorf("paused: got NextAt %s, want none", paused.NextAt)
		}

		passTime(3 * time.Hour)
		w.putSchedule(a, "p", newDefinition("0 * * * *"))
		passTime(time.Hour)

		if s := w.getSchedule("p"); s.Filed != 1 || s.State.Missed != 0 ||
			s.Last.DueAt.Format("15:04") != "14:00" {
			t.Errorf("got %+v, want one filed at 14:00, and none made up for the pause", s.State)
		}
	})
}
