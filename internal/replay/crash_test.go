package replay_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/replay"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
)

// broken runs a job of which storage's nth call fails, and with it, where the process is
// killed, all that follow. Whoever carries the job to its end, the numbers are right.
func broken(t *testing.T, n int, kind storagetest.FaultKind, killed bool) {
	simulate(t, 2, func(t *testing.T, w *world) {
		w.die(4, keys...)
		w.late["/e"] = true
		if n%2 == 0 {
			w.takes = 50 * time.Second // the holders were killed, too
		}
		p, q := w.start(), w.start()
		spec := plain
		spec.RatePerMinute = 90
		calls := 0
		p.faults.Set(func(storagetest.Call) storagetest.Fault {
			switch calls++; {
			case calls == n:
				return storagetest.Fault{Kind: kind}
			case calls > n && killed:
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})
		_, err := p.Start(t.Context(), spec)
		time.Sleep(20 * time.Second)
		if killed {
			p.kill()
		}
		for range 4 {
			q.sweep()
			time.Sleep(time.Minute)
		}
		jobs, listErr := q.List(t.Context())
		if err != nil && listErr == nil && len(jobs) == 0 {
			return // killed before it began
		}
		if listErr != nil || len(jobs) != 1 {
			t.Fatalf("got %+v, %v, want listErr == nil && len(jobs) == 1", jobs, listErr)
		}
		j := q.comes(jobs[0].ID, replay.Done, time.Minute)
		if j.Matched != 20 || j.Replayed != 16 || j.Delivered != 16 || j.Refused != 4 || j.Skipped != 0 {
			t.Errorf("got %+v, want j.Matched == 20 && j.Replayed == 16 && j.Delivered == 16 && "+
				"j.Refused == 4 && j.Skipped == 0", j)
		}
		w.inOrder()
		if len(w.list()) != 16 || len(w.told()) == 0 {
			t.Errorf("%d were asked for, %d times told", len(w.list()), len(w.told()))
		}
	})
}

// brokenCalls is more than the calls of storage that such a job makes.
const brokenCalls = 150

func TestRunner_Crash(t *testing.T) {
	for n := 1; n <= brokenCalls; n++ {
		for _, kind := range []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter} {
			t.Run(fmt.Sprint(n, " ", kind), func(t *testing.T) { broken(t, n, kind, true) })
		}
	}
}

func TestRunner_Hiccup(t *testing.T) {
	for n := 1; n <= brokenCalls; n++ {
		for _, kind := range []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter} {
			t.Run(fmt.Sprint(n, " ", kind), func(t *testing.T) { broken(t, n, kind, false) })
		}
	}
}

// TestRunner_TwoAtOnce: a carrier that lost its lease, and does not know, does no harm.
func TestRunner_TwoAtOnce(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.die(40, keys...)
		p, q := w.start(), w.start()
		j := p.begin(plain)
		time.Sleep(5 * time.Second)
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Port == "leases" {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})
		q.sweep()
		j = q.comes(j.ID, replay.Done, 3*time.Minute)
		if j.Delivered != 200 || len(w.list()) != 200 {
			t.Errorf("got %+v, want j.Delivered == 200 && len(w.list()) == 200", j)
		}
		w.inOrder()
	})
}

// TestRunner_Stalled: a carrier stands still for a minute, in the middle of a turn, while
// another takes the job up. What it has to say then is not heard.
func TestRunner_Stalled(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.die(40, keys...)
		p, q := w.start(), w.start()
		spec := plain
		spec.RatePerMinute = 60
		j := p.begin(spec)
		time.Sleep(38 * time.Second) // the next turn comes two seconds later
		p.stalls <- time.Minute
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Port == "leases" {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})
		time.Sleep(20 * time.Second)
		q.sweep()
		if len(p.stalls) != 0 {
			t.Fatal("it did not stall")
		}
		last := int64(0)
		for range 60 {
			time.Sleep(time.Second)
			got, err := q.Get(t.Context(), j.ID)
			if err != nil || got.Replayed < last {
				t.Fatalf("after %d: %+v, %v", last, got, err)
			}
			last = got.Replayed
		}
		j = q.comes(j.ID, replay.Done, 5*time.Minute)
		if j.Replayed != 200 || j.Delivered != 200 || len(w.list()) != 200 {
			t.Errorf("got %+v, want j.Replayed == 200 && j.Delivered == 200 && len(w.list()) == 200", j)
		}
		w.inOrder()
	})
}

// TestRunner_Close: the next process resumes the jobs of one that has ended.
func TestRunner_Close(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.die(40, keys...)
		p := w.start()
		j := p.begin(plain)
		time.Sleep(5 * time.Second)
		p.stop()
		n := len(w.list())
		time.Sleep(time.Minute)
		if len(w.list()) != n || n == 0 || n == 200 {
			t.Errorf("%d, then %d were asked for", n, len(w.list()))
		}
		p.sweep() // it is closed
		q := w.start()
		q.sweep()
		if j = q.comes(j.ID, replay.Done, time.Minute); j.Delivered != 200 {
			t.Errorf("got %+v, want j.Delivered == 200", j)
		}
		w.inOrder()
	})
}

// TestRunner_KilledAtTheEnd: a job that has its row is over, though its note is there still.
func TestRunner_KilledAtTheEnd(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.die(1, keys...)
		p, q := w.start(), w.start()
		gone := false
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if gone = gone || c.Op == "Transact" && c.Ops[0].Kind == storage.Delete; gone {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})
		j := q.comes(p.begin(plain).ID, replay.Done, time.Minute)
		time.Sleep(time.Minute)
		p.stop()
		if jobs, err := w.store.ReadReplayJobs(t.Context()); err != nil || len(jobs) != 1 {
			t.Fatalf("got %v, %v, want err == nil && len(jobs) == 1", jobs, err)
		}
		if all, err := q.List(t.Context()); err != nil || len(all) != 1 || all[0] != j {
			t.Errorf("got %+v, %v, want err == nil && len(all) == 1 && all[0] == j", all, err)
		}
		before := len(w.told())
		q.sweep()
		time.Sleep(time.Minute)
		if jobs, err := w.store.ReadReplayJobs(t.Context()); err != nil || len(jobs) != 0 {
			t.Errorf("got %v, %v, want err == nil && len(jobs) == 0", jobs, err)
		}
		if told := w.told(); len(told) != before+1 || told[before] != j {
			t.Errorf("told: %+v", told)
		}
	})
}
