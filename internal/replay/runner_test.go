package replay_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/relane/epochend"
	"weir/internal/replay"
	"weir/internal/replay/jobrow"
	"weir/internal/storage"
	"weir/internal/weir"
)

var keys = []string{"/a", "/b", "/c", "/d", "/e"}

func TestRunner_ReplaysAll(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *world) {
		w.addDead(20, keys...)
		p := w.start()
		time.Sleep(time.Second)
		j := p.startJob(plain)
		time.Sleep(time.Millisecond)
		w.addDead(1, "/a") // died since: not meant
		j = p.waitForState(j.ID, replay.Done, time.Minute)
		if j.Matched != 100 || j.Replayed != 100 || j.Delivered != 100 || j.FinishedAt.IsZero() {
			t.Errorf("got %+v, want Matched 100, Replayed 100, Delivered 100 and a FinishedAt", j)
		}
		w.inOrder()
		if n := len(w.listAsked()); n != 100 {
			t.Errorf("%d were asked for, want 100", n)
		}
		if jobs, err := jobrow.ReadAll(t.Context(), w.store); err != nil || len(jobs) != 0 {
			t.Errorf("still under way: %v, %v", jobs, err)
		}
		if told := w.listFinished(); len(told) != 1 || told[0] != j {
			t.Errorf("reported: %+v, want one, %+v", told, j)
		}
		all, err := p.List(t.Context())
		if err != nil || len(all) != 1 || all[0] != j {
			t.Errorf("got %+v, %v, want one job, %+v, and no error", all, err, j)
		}
	})
}

// TestRunner_KeepsKeysTogether: a key's messages are replayed together at any rate, and the job still
// keeps its rate.
func TestRunner_KeepsKeysTogether(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(10, "/a", "/b", "/c")
		p := w.start()
		spec := plain
		spec.RatePerMinute = 60
		began := time.Now()
		p.waitForState(p.startJob(spec).ID, replay.Done, time.Minute)
		w.inOrder()
		list := w.listAsked()
		for i := 0; i < len(list); i += 10 {
			turn := list[i : i+10]
			for _, a := range turn {
				if a.key != turn[0].key || !a.at.Equal(turn[0].at) {
					t.Errorf("%q at %s, in the turn of %q at %s, want key %v and at %v", a.key, a.at, turn[0].key,
						turn[0].at, turn[0].key, turn[0].at)
				}
			}
			if due := began.Add(time.Duration(i) * time.Second); turn[0].at.Before(due) ||
				turn[0].at.After(due.Add(time.Second)) {
				t.Errorf("%q came after %s, not after %d s", turn[0].key, turn[0].at.Sub(began), i)
			}
		}
	})
}

func TestRunner_KeepsTheRate(t *testing.T) {
	for _, rate := range []int{1, 7, 60, 600, 6000} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			simulate(t, 2, func(t *testing.T, w *world) {
				n := min(rate+20, 300)
				for i := range n {
					w.addDead(1, fmt.Sprint("/", i))
				}
				p := w.start()
				spec := plain
				spec.RatePerMinute = rate
				p.waitForState(p.startJob(spec).ID, replay.Done, time.Hour)
				list := w.listAsked()
				ahead := max(1, min(50, rate/30)) // a turn
				for i := range list {
					least := time.Duration(max(i+1-ahead, 0)) * time.Minute / time.Duration(rate)
					took := list[i].at.Sub(list[0].at)
					if took < least-time.Microsecond || took > least+4*time.Second+time.Minute/time.Duration(rate) {
						t.Fatalf("%d came after %s, want %s at the earliest, and soon after", i, took, least)
					}
				}
			})
		})
	}
}

// TestRunner_RefusedTakesNoTime: refused messages do not count for the rate.
func TestRunner_RefusedTakesNoTime(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(100, keys...)
		for _, key := range keys {
			w.late[key] = true
		}
		p := w.start()
		spec := plain
		spec.RatePerMinute = 1
		if j := p.waitForState(p.startJob(spec).ID, replay.Done, time.Minute); j.Refused != 500 {
			t.Errorf("got %+v, want Refused 500", j)
		}
	})
}

// TestRunner_AHolderAhead: a dead message belongs to the job, even if its holder's clock was ahead.
func TestRunner_AHolderAhead(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDeadMessage("/a", "article", 422, "bad", time.Now().Add(2*time.Second))
		p := w.start()
		if j := p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute); j.Matched != 1 || j.Delivered != 1 {
			t.Errorf("got %+v, want Matched 1 and Delivered 1", j)
		}
	})
}

func TestRunner_StopsAtErrorRate(t *testing.T) {
	for name, c := range map[string]struct {
		rate  float64
		bad   int // of five
		state replay.State
	}{
		"HalfIsTooMuch":     {0.5, 3, replay.Stopped},
		"LessIsNot":         {0.5, 2, replay.Done},
		"AnyIsTooMuch":      {0, 1, replay.Stopped},
		"NoneIsNotTooMuch":  {0, 0, replay.Done},
		"OnlyAllIsTooMuch":  {1, 4, replay.Done},
		"AllIsTooMuchAtAll": {1, 5, replay.Stopped},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 1, func(t *testing.T, w *world) {
				w.addDead(40, keys...)
				w.ends = func(key string) weir.Stage {
					if slices.Index(keys, key) < c.bad {
						return weir.Dead
					}
					return weir.Delivered
				}
				p := w.start()
				spec := plain
				spec.RatePerMinute, spec.StopAtErrorRate = 6000, c.rate
				j := p.waitForState(p.startJob(spec).ID, c.state, 5*time.Minute)
				outcomes := j.Delivered + j.DeadAgain
				if c.state == replay.Stopped &&
					(j.StopReason == "" || outcomes < 10 || float64(j.DeadAgain) < c.rate*float64(outcomes)) {
					t.Errorf("got %+v, want a reason, and at least 10 outcomes of which %g are dead", j, c.rate)
				}
				if c.state == replay.Done && (j.StopReason != "" || j.DeadAgain != int64(40*c.bad) ||
					j.Delivered != int64(200-40*c.bad)) {
					t.Errorf("got %+v, want %d dead again, and all others of 200 delivered", j, 40*c.bad)
				}
				n := len(w.listAsked())
				time.Sleep(time.Minute)
				if len(w.listAsked()) != n || int64(n) != j.Replayed {
					t.Errorf("%d, and later %d were asked for, want no more, and as many replayed: %+v",
						n, len(w.listAsked()), j)
				}
			})
		})
	}
}

func TestRunner_CountsRefusedAndSkipped(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(4, keys...)
		w.late["/a"] = true // refused by the API
		w.ends = func(key string) weir.Stage {
			return map[string]weir.Stage{"/b": refused, "/c": weir.Superseded}[key] +
				map[string]weir.Stage{"/d": weir.Delivered, "/e": weir.Cancelled}[key]
		}
		p := w.start()
		spec := plain
		spec.RatePerMinute = 60
		j := p.startJob(spec)
		time.Sleep(100 * time.Millisecond)
		// One of /e is replayed by hand before its turn, one of /d edited, and dead again.
		for _, hand := range []struct {
			seq    int64
			values map[string]any
		}{{5, map[string]any{"Stage": "delivered", "FinishedAt": time.Now().UTC()}}, {4,
			map[string]any{"FinishedAt": time.Now().UTC()}}} {
			if _, err := w.account.Table().Transact(t.Context(), partitionOf(0),
				[]storage.Op{{Kind: storage.Merge, Key: rowKey("m_", hand.seq), Values: hand.values}}); err != nil {
				t.Fatal(err)
			}
		}
		j = p.waitForState(j.ID, replay.Done, 3*time.Minute)
		// Those done by hand are still in the list of the dead here, which no real holder leaves.
		if j.Matched != 20 || j.Replayed != 4+3+3 || j.Otherwise != 7 || j.Delivered != 3 || j.Refused != 4+4+2 {
			t.Errorf("got %+v, want Matched 20, Replayed %v, Otherwise 7, Delivered 3 and Refused %v", j, 4+3+3,
				4+4+2)
		}
		for _, a := range w.listAsked() {
			if a.force || a.key == "/a" || a.seq == 5 || a.seq == 4 {
				t.Errorf("asked for %+v, want force false, key another than /a, seq neither 5 "+
					"nor 4", a)
			}
		}
		spec.Force = true
		spec.Filter.Key = "/a"
		j = p.waitForState(p.startJob(spec).ID, replay.Done, time.Minute)
		if j.Replayed != 4 || !j.Force || j.Refused != 0 {
			t.Errorf("by force: %+v, want Replayed 4, Force true and Refused 0", j)
		}
	})
}

// If no replayed message is delivered, the job stops at its bound of open messages.
func TestRunner_BoundsOpenMessages(t *testing.T) {
	simulate(t, 2, func(t *testing.T, w *world) {
		w.addDead(120, keys...)
		w.takes = 0
		p := w.start()
		spec := plain
		spec.RatePerMinute = 6000
		j := p.startJob(spec)
		time.Sleep(10 * time.Minute)
		got := p.waitForState(j.ID, replay.Running, 0)
		if got.Waiting != 500 || got.Replayed != 500 || len(w.listAsked()) != 500 {
			t.Errorf("got %+v, want Waiting 500, Replayed 500 and 500 asked", got)
		}
		w.mu.Lock()
		w.takes = time.Second
		w.mu.Unlock()
		if j := p.waitForState(j.ID, replay.Done, 2*time.Minute); j.Delivered != 600 {
			t.Errorf("got %+v, want Delivered 600", j)
		}
		w.inOrder()
	})
}

func TestRunner_Cancel(t *testing.T) {
	for _, where := range []string{"Here", "InAnotherProcess", "WhereNobodyCarriesIt"} {
		t.Run(where, func(t *testing.T) {
			simulate(t, 1, func(t *testing.T, w *world) {
				w.addDead(100, keys...)
				p := w.start()
				j, by := p.startJob(plain), p
				time.Sleep(5 * time.Second)
				if where != "Here" {
					by = w.start()
				}
				if where == "WhereNobodyCarriesIt" {
					p.kill()
				}
				got, err := by.Cancel(t.Context(), j.ID)
				if err != nil || got.State != replay.Cancelled || got.Replayed < 20 || got.FinishedAt.IsZero() {
					t.Fatalf("got %+v, %v, want State %v, Replayed at least 20, a FinishedAt and no error", got, err,
						replay.Cancelled)
				}
				time.Sleep(3 * time.Second)
				n := len(w.listAsked())
				if where == "Here" && int64(n) != got.Replayed {
					t.Errorf("%d were asked for, and Replayed is %d, want the same", n, got.Replayed)
				}
				time.Sleep(5 * time.Minute)
				by.sweepForJobs()
				time.Sleep(time.Minute)
				if len(w.listAsked()) != n || n >= 500 || len(w.listFinished()) != 1 {
					t.Errorf("%d, then %d were asked for, ends %v, want %v, less than 500 and one end",
						n, len(w.listAsked()), w.listFinished(), n)
				}
				if again, err := by.Cancel(t.Context(), j.ID); err != nil || again != got {
					t.Errorf("again: %+v, %v", again, err)
				}
				if now, err := by.Get(t.Context(), j.ID); err != nil || now != got {
					t.Errorf("later: %+v, %v, want %v and no error", now, err, got)
				}
			})
		})
	}
}

// A job stays under way until its end is reported, even if the process changes, and its end is reported once.
func TestRunner_ReportsItsEndOnce(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("Killed", killed), func(t *testing.T) {
			simulate(t, 1, func(t *testing.T, w *world) {
				w.addDead(2, keys...)
				w.deaf = 5
				p := w.start()
				j := p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute)
				if len(w.listFinished()) != 0 {
					t.Fatalf("reported: %+v, want none", w.listFinished())
				}
				if killed {
					p.kill()
					p = w.start()
				}
				for range 5 {
					p.sweepForJobs()
					time.Sleep(time.Minute)
				}
				if told := w.listFinished(); len(told) != 1 || told[0] != j {
					t.Errorf("reported: %+v, want one, %+v", told, j)
				}
				if jobs, err := jobrow.ReadAll(t.Context(), w.store); err != nil || len(jobs) != 0 {
					t.Errorf("still under way: %v, %v", jobs, err)
				}
			})
		})
	}
}

func TestRunner_CancelOfAJobThatIsOver(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		p := w.start()
		j := p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute)
		if _, err := p.Cancel(t.Context(), j.ID); weir.KindOf(err) != weir.Conflict {
			t.Errorf("cancel of a job that has ended: %v, want an error of kind Conflict", err)
		}
		for _, id := range []string{"nothing", "../meta", "0000000000000abcdefab"} {
			if _, err := p.Cancel(t.Context(), id); weir.KindOf(err) != weir.NotFound {
				t.Errorf("%q: got %v, want an error of kind NotFound", id, err)
			}
		}
	})
}

func TestRunner_Limits(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(1, keys...)
		w.takes = 0
		p := w.start()
		var first replay.Job
		for i := range jobrow.MaxInProgress {
			if j := p.startJob(plain); i == 0 {
				first = j
			}
			time.Sleep(time.Second)
		}
		if _, err := p.Start(t.Context(), plain); weir.KindOf(err) != weir.Conflict {
			t.Errorf("one too many: %v", err)
		}
		all, err := p.List(t.Context())
		if err != nil || len(all) != jobrow.MaxInProgress || all[len(all)-1].ID != first.ID {
			t.Errorf("%d, the oldest %q, %v, want %v jobs, the oldest %v and no error",
				len(all), all[len(all)-1].ID, err,
				jobrow.MaxInProgress, first.ID)
		}
		if _, err := p.Cancel(t.Context(), first.ID); err != nil {
			t.Fatal(err)
		}
		p.startJob(plain)
		if err := (epochend.Lanes{Store: w.store}).Seal(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Cancel(t.Context(), all[0].ID); err != nil {
			t.Errorf("cancel in a sealed lane: %v", err)
		}
		if _, err := p.Start(t.Context(), plain); weir.KindOf(err) != weir.Unavailable {
			t.Errorf("in a sealed lane: %v, want an error of kind Unavailable", err)
		}
	})
}

func TestRunner_KeepsThirtyDays(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		p := w.start()
		old := p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute)
		time.Sleep(29 * 24 * time.Hour)
		young := p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute)
		if all, err := p.List(t.Context()); err != nil || len(all) != 2 || all[0] != young || all[1] != old {
			t.Errorf("got %+v, %v, want %+v, %+v and no error", all, err, young, old)
		}
		time.Sleep(2 * 24 * time.Hour)
		p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute)
		time.Sleep(time.Second)
		if _, err := p.Get(t.Context(), old.ID); weir.KindOf(err) != weir.NotFound {
			t.Errorf("the old one: %v, want an error of kind NotFound", err)
		}
		if _, err := p.Get(t.Context(), young.ID); err != nil {
			t.Errorf("the young one: %v", err)
		}
	})
}

// TestRunner_KeepsTheOrderOfScheduled: a message that was filed first and became due last is requested
// last, because the holder may deliver it before the next request.
func TestRunner_KeepsTheOrderOfScheduled(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(3, "/a")
		_, err := w.account.Table().Transact(t.Context(), partitionOf(0), []storage.Op{
			{Kind: storage.Merge, Key: rowKey("x_", 1),
				Values: map[string]any{"Place": lane.OrderPos(2) + "_000000000000000001_" + lane.OrderPos(1)}}})
		if err != nil {
			t.Fatal(err)
		}
		p := w.start()
		p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute)
		var got []int64
		for _, a := range w.listAsked() {
			got = append(got, a.seq)
		}
		if !slices.Equal(got, []int64{2, 1, 3}) {
			t.Errorf("asked for %v, want [2 1 3]", got)
		}
	})
}
