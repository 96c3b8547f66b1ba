package replay_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochend"
	"weir/internal/lane/jobrow"
	"weir/internal/replay"
	"weir/internal/storage"
	"weir/internal/weir"
)

var keys = []string{"/a", "/b", "/c", "/d", "/e"}

func TestRunner_ReplaysAll(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *world) {
		w.addDead(20, keys...)
		p := w.startProcess()
		time.Sleep(time.Second)
		j := p.startJob(plain)
		time.Sleep(time.Millisecond)

		// this message died after the job had started, so it does not belong to the job
		w.addDead(1, "/a")
		j = p.waitForState(j.ID, replay.Done, time.Minute)
		if j.Matched != 100 || j.Replayed != 100 || j.Delivered != 100 || j.FinishedAt.IsZero() {
			t.Errorf("got %+v, want Matched 100, Replayed 100, Delivered 100 and a FinishedAt", j)
		}

		w.checkOrder()
		if n := len(w.listRequested()); n != 100 {
			t.Errorf("got %d requests, want 100", n)
		}

		if jobs, err := jobrow.ReadAll(t.Context(), w.store); err != nil || len(jobs) != 0 {
			t.Errorf("got the jobs in progress %v, %v, want none and no error", jobs, err)
		}

		if reported := w.listFinished(); len(reported) != 1 || reported[0] != j {
			t.Errorf("got the calls of Finished %+v, want one with %+v", reported, j)
		}

		all, err := p.List(t.Context())
		if err != nil || len(all) != 1 || all[0] != j {
			t.Errorf("got %+v, %v, want one job, %+v, and no error", all, err, j)
		}
	})
}

// A job replays the messages of a key together, and keeps its rate on average.
func TestRunner_KeepsKeysTogether(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(10, "/a", "/b", "/c")
		p := w.startProcess()
		spec := plain
		spec.RatePerMinute = 60
		began := time.Now()
		p.waitForState(p.startJob(spec).ID, replay.Done, time.Minute)
		w.checkOrder()
		list := w.listRequested()
		for i := 0; i < len(list); i += 10 {
			group := list[i : i+10]
			for _, a := range group {
				if a.key != group[0].key || !a.at.Equal(group[0].at) {
					t.Errorf("got a request of key %q at %s, want key %q at %s", a.key, a.at,
						group[0].key, group[0].at)
				}
			}

			if due := began.Add(time.Duration(i) * time.Second); group[0].at.Before(due) ||
				group[0].at.After(due.Add(time.Second)) {
				t.Errorf("got the requests of key %q after %s, want %d s to %d s", group[0].key,
					group[0].at.Sub(began), i, i+1)
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

				p := w.startProcess()
				spec := plain
				spec.RatePerMinute = rate
				p.waitForState(p.startJob(spec).ID, replay.Done, time.Hour)
				list := w.listRequested()

				// number of replays that the job requests together
				ahead := max(1, min(50, rate/30))
				for i := range list {
					least := time.Duration(max(i+1-ahead, 0)) * time.Minute / time.Duration(rate)
					took := list[i].at.Sub(list[0].at)
					if took < least-time.Microsecond ||
						took > least+4*time.Second+time.Minute/time.Duration(rate) {
						t.Fatalf("got request %d after %s, want %s to %s", i, took, least,
							least+4*time.Second+time.Minute/time.Duration(rate))
					}
				}
			})
		})
	}
}

// Refused messages do not count towards the rate: 500 refusals take less than a minute at a rate of
// one message per minute.
func TestRunner_RefusedTakesNoTime(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(100, keys...)
		for _, key := range keys {
			w.hasLater[key] = true
		}

		p := w.startProcess()
		spec := plain
		spec.RatePerMinute = 1
		if j := p.waitForState(p.startJob(spec).ID, replay.Done, time.Minute); j.Refused != 500 {
			t.Errorf("got %+v, want Refused 500", j)
		}
	})
}

// A job includes each message that was dead when the job started. The recorded time of death can be
// later than the job's start, because the holder's clock can be ahead.
func TestRunner_AHolderAhead(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDeadMessage("/a", "article", 422, "bad", time.Now().Add(2*time.Second))
		p := w.startProcess()
		if j := p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute); j.Matched != 1 ||
			j.Delivered != 1 {
			t.Errorf("got %+v, want Matched 1 and Delivered 1", j)
		}
	})
}

func TestRunner_StopsAtErrorRate(t *testing.T) {
	for name, c := range map[string]struct {
		rate  float64
		bad   int // number of keys whose messages die again, out of five
		state replay.State
	}{
		"AboveTheRate":     {0.5, 3, replay.Stopped},
		"BelowTheRate":     {0.5, 2, replay.Done},
		"RateZeroOneDies":  {0, 1, replay.Stopped},
		"RateZeroNoneDies": {0, 0, replay.Done},
		"RateOneFourDie":   {1, 4, replay.Done},
		"RateOneAllDie":    {1, 5, replay.Stopped},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 1, func(t *testing.T, w *world) {
				w.addDead(40, keys...)
				w.outcomeOf = func(key string) weir.Stage {
					if slices.Index(keys, key) < c.bad {
						return weir.Dead
					}
					return weir.Delivered
				}

				p := w.startProcess()
				spec := plain
				spec.RatePerMinute, spec.StopAtErrorRate = 6000, c.rate
				j := p.waitForState(p.startJob(spec).ID, c.state, 5*time.Minute)
				outcomes := j.Delivered + j.DeadAgain
				if c.state == replay.Stopped &&
					(j.StopReason == "" || outcomes < 10 ||
						float64(j.DeadAgain) < c.rate*float64(outcomes)) {
					t.Errorf("got %+v, want a StopReason, and at least 10 outcomes with a share of %g dead again", j,
						c.rate)
				}

				if c.state == replay.Done &&
					(j.StopReason != "" || j.DeadAgain != int64(40*c.bad) ||
						j.Delivered != int64(200-40*c.bad)) {
					t.Errorf("got %+v, want no StopReason, DeadAgain %d and Delivered %d", j,
						40*c.bad, 200-40*c.bad)
				}

				n := len(w.listRequested())
				time.Sleep(time.Minute)

				if len(w.listRequested()) != n || int64(n) != j.Replayed {
					t.Errorf("got %d requests at the end of the job and %d a minute later, want Replayed of both: %+v",
						n, len(w.listRequested()), j)
				}
			})
		})
	}
}

func TestRunner_CountsRefusedAndSkipped(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(4, keys...)
		w.hasLater["/a"] = true // each replay for /a is refused at once
		w.outcomeOf = func(key string) weir.Stage {
			return map[string]weir.Stage{"/b": refused, "/c": weir.Superseded}[key] +
				map[string]weir.Stage{"/d": weir.Delivered, "/e": weir.Cancelled}[key]
		}

		p := w.startProcess()
		spec := plain
		spec.RatePerMinute = 60
		j := p.startJob(spec)
		time.Sleep(100 * time.Millisecond)

		// An operator replays messages 4 (key /d) and 5 (key /e) before the job reaches them.
		// Message 5 is delivered, and message 4 dies again.
		for _, hand := range []struct {
			seq    int64
			values map[string]any
		}{{5, map[string]any{"Stage": "delivered", "FinishedAt": time.Now().UTC()}}, {4,
			map[string]any{"FinishedAt": time.Now().UTC()}}} {
			if _, err := w.account.Table().Transact(t.Context(), partitionOf(0),
				[]storage.Op{{Kind: storage.Merge, Key: rowKey("m_", hand.seq),
					Values: hand.values}}); err != nil {
				t.Fatal(err)
			}
		}

		j = p.waitForState(j.ID, replay.Done, 3*time.Minute)

		// Unlike a holder, the test did not update messages 4 and 5 in the list of dead messages
		// (rows x_). So the job counts both messages as refused.
		if j.Matched != 20 || j.Replayed != 4+3+3 || j.Otherwise != 7 || j.Delivered != 3 ||
			j.Refused != 4+4+2 {
			t.Errorf("got %+v, want Matched 20, Replayed %v, Otherwise 7, Delivered 3 and Refused %v", j, 4+3+3,
				4+4+2)
		}

		for _, a := range w.listRequested() {
			if a.force || a.key == "/a" || a.seq == 5 || a.seq == 4 {
				t.Errorf("got the request %+v, want no force, and neither key /a nor message 4 or 5", a)
			}
		}

		spec.Force = true
		spec.Filter.Key = "/a"
		j = p.waitForState(p.startJob(spec).ID, replay.Done, time.Minute)
		if j.Replayed != 4 || !j.Force || j.Refused != 0 {
			t.Errorf("with Force: got %+v, want Replayed 4, Force true and Refused 0", j)
		}
	})
}

// A job requests no further replay while 500 replayed messages are not final yet.
func TestRunner_BoundsOpenMessages(t *testing.T) {
	simulate(t, 2, func(t *testing.T, w *world) {
		w.addDead(120, keys...)
		w.grantDelay = 0
		p := w.startProcess()
		spec := plain
		spec.RatePerMinute = 6000
		j := p.startJob(spec)
		time.Sleep(10 * time.Minute)
		got := p.waitForState(j.ID, replay.Running, 0)
		if got.Waiting != 500 || got.Replayed != 500 || len(w.listRequested()) != 500 {
			t.Errorf("got %+v, want Waiting 500, Replayed 500 and 500 requests", got)
		}

		w.mu.Lock()
		w.grantDelay = time.Second
		w.mu.Unlock()
		if j := p.waitForState(j.ID, replay.Done, 2*time.Minute); j.Delivered != 600 {
			t.Errorf("got %+v, want Delivered 600", j)
		}

		w.checkOrder()
	})
}

func TestRunner_Cancel(t *testing.T) {
	for _, where := range []string{"Here", "InAnotherProcess", "InADeadProcess"} {
		t.Run(where, func(t *testing.T) {
			simulate(t, 1, func(t *testing.T, w *world) {
				w.addDead(100, keys...)
				p := w.startProcess()
				j, by := p.startJob(plain), p
				time.Sleep(5 * time.Second)
				if where != "Here" {
					by = w.startProcess()
				}

				if where == "InADeadProcess" {
					p.kill()
				}

				got, err := by.Cancel(t.Context(), j.ID)
				if err != nil || got.State != replay.Cancelled || got.Replayed < 20 ||
					got.FinishedAt.IsZero() {
					t.Fatalf("got %+v, %v, want State %v, Replayed at least 20, a FinishedAt and no error", got, err,
						replay.Cancelled)
				}

				time.Sleep(3 * time.Second)
				n := len(w.listRequested())
				if where == "Here" && int64(n) != got.Replayed {
					t.Errorf("got %d requests and Replayed %d, want the same number", n,
						got.Replayed)
				}

				time.Sleep(5 * time.Minute)
				by.sweepForJobs()
				time.Sleep(time.Minute)

				if len(w.listRequested()) != n || n >= 500 || len(w.listFinished()) != 1 {
					t.Errorf("got %d requests, minutes later %d, and the calls of Finished %v; want the same number, "+
						"below 500, and one call", n, len(w.listRequested()), w.listFinished())
				}

				if again, err := by.Cancel(t.Context(), j.ID); err != nil || again != got {
					t.Errorf("second Cancel: got %+v, %v, want %+v and no error", again, err, got)
				}

				if now, err := by.Get(t.Context(), j.ID); err != nil || now != got {
					t.Errorf("Get: got %+v, %v, want %+v and no error", now, err, got)
				}
			})
		})
	}
}

// If replay.Config.Finished returns an error, later sweeps call Finished again, also in another
// process. Finished must succeed exactly once.
func TestRunner_ReportsItsEndOnce(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("Killed", killed), func(t *testing.T) {
			simulate(t, 1, func(t *testing.T, w *world) {
				w.addDead(2, keys...)
				w.failedReports = 5
				p := w.startProcess()
				j := p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute)

				if len(w.listFinished()) != 0 {
					t.Fatalf("got the calls of Finished %+v, want none that succeeded",
						w.listFinished())
				}

				if killed {
					p.kill()
					p = w.startProcess()
				}

				for range 5 {
					p.sweepForJobs()
					time.Sleep(time.Minute)
				}

				if reported := w.listFinished(); len(reported) != 1 || reported[0] != j {
					t.Errorf("got the calls of Finished %+v, want one with %+v", reported, j)
				}

				if jobs, err := jobrow.ReadAll(t.Context(), w.store); err != nil || len(jobs) != 0 {
					t.Errorf("got the jobs in progress %v, %v, want none and no error", jobs, err)
				}
			})
		})
	}
}

// The first Cancel stores the job's final state, but then Finished fails, and another process still
// runs the job. The second Cancel ends the job.
func TestRunner_CancelAgainAfterAFailure(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(100, keys...)
		p, q := w.startProcess(), w.startProcess()
		j := p.startJob(plain)
		time.Sleep(5 * time.Second)
		w.mu.Lock()
		w.failedReports = 1
		w.mu.Unlock()
		if _, err := q.Cancel(t.Context(), j.ID); err == nil {
			t.Fatal("first Cancel: got no error, want that of Finished")
		}

		if got, err := q.Cancel(t.Context(), j.ID); err != nil || got.State != replay.Cancelled {
			t.Fatalf("second Cancel: got %+v, %v, want State %v and no error", got, err,
				replay.Cancelled)
		}

		time.Sleep(3 * time.Second)
		n := len(w.listRequested())
		time.Sleep(5 * time.Minute)

		if later := len(w.listRequested()); later != n || n >= 500 || len(w.listFinished()) != 1 {
			t.Errorf("got %d requests, minutes later %d, and the calls of Finished %v; want the same number, "+
				"below 500, and one call", n, later, w.listFinished())
		}
	})
}

func TestRunner_CancelOfAJobThatIsOver(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		p := w.startProcess()
		j := p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute)
		if _, err := p.Cancel(t.Context(), j.ID); weir.KindOf(err) != weir.Conflict {
			t.Errorf("Cancel of a job that is done: got %v, want Conflict", err)
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
		w.grantDelay = 0
		p := w.startProcess()
		var first replay.Job
		for i := range jobrow.MaxInProgress {
			if j := p.startJob(plain); i == 0 {
				first = j
			}
			time.Sleep(time.Second)
		}

		if _, err := p.Start(t.Context(), plain); weir.KindOf(err) != weir.Conflict {
			t.Errorf("Start of job %d: got %v, want Conflict", jobrow.MaxInProgress+1, err)
		}

		all, err := p.List(t.Context())
		if err != nil || len(all) != jobrow.MaxInProgress || all[len(all)-1].ID != first.ID {
			t.Errorf("got the jobs %+v, %v, want %d jobs, the last of them %s, and no error", all,
				err, jobrow.MaxInProgress, first.ID)
		}

		if _, err := p.Cancel(t.Context(), first.ID); err != nil {
			t.Fatal(err)
		}

		p.startJob(plain)
		if err := (epochend.Lanes{Store: w.store}).Seal(t.Context(), 0); err != nil {
			t.Fatal(err)
		}

		if _, err := p.Cancel(t.Context(), all[0].ID); err != nil {
			t.Errorf("Cancel in a sealed lane: got %v, want no error", err)
		}

		if _, err := p.Start(t.Context(), plain); weir.KindOf(err) != weir.Unavailable {
			t.Errorf("Start in a sealed lane: got %v, want Unavailable", err)
		}
	})
}

func TestRunner_KeepsThirtyDays(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		p := w.startProcess()
		old := p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute)
		time.Sleep(29 * 24 * time.Hour)
		young := p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute)
		if all, err := p.List(t.Context()); err != nil || len(all) != 2 || all[0] != young ||
			all[1] != old {
			t.Errorf("got %+v, %v, want %+v, %+v and no error", all, err, young, old)
		}

		time.Sleep(2 * 24 * time.Hour)
		expiry := replay.Expiry{Table: w.account.Table(), Now: time.Now}
		if isDone, err := expiry.RemoveExpired(t.Context()); err != nil || !isDone {
			t.Errorf("RemoveExpired: got %v, %v, want true and no error", isDone, err)
		}

		if _, err := p.Get(t.Context(), old.ID); weir.KindOf(err) != weir.NotFound {
			t.Errorf("the job of 31 days ago: got %v, want NotFound", err)
		}

		if _, err := p.Get(t.Context(), young.ID); err != nil {
			t.Errorf("the job of two days ago: got %v, want no error", err)
		}
	})
}

// Message 1 was scheduled, and became due after message 2 was appended. So message 2 comes first in
// the key's order, and the job must replay message 2 first.
func TestRunner_KeepsTheOrderOfScheduled(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(3, "/a")
		_, err := w.account.Table().Transact(t.Context(), partitionOf(0), []storage.Op{
			{Kind: storage.Merge, Key: rowKey("x_", 1),
				Values: map[string]any{"Place": lane.OrderPos(2) + "_000000000000000001_" +
					lane.OrderPos(1)}}})
		if err != nil {
			t.Fatal(err)
		}

		p := w.startProcess()
		p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute)
		var got []int64
		for _, a := range w.listRequested() {
			got = append(got, a.seq)
		}

		if !slices.Equal(got, []int64{2, 1, 3}) {
			t.Errorf("got requests of the messages %v, want [2 1 3]", got)
		}
	})
}
