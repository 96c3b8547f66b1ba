package replay_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane/jobrow"
	"weir/internal/replay"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
)

// runWithFault starts a job in one process and makes that process's nth call to storage fail. If
// killed is true, all later calls of the process fail, too, so that a second process must end the
// job. The job's numbers must be right in both cases.
func runWithFault(t *testing.T, n int, kind storagetest.FaultKind, killed bool) {
	simulate(t, 2, func(t *testing.T, w *world) {
		w.addDead(4, keys...)
		w.hasLater["/e"] = true
		if n%2 == 0 {
			w.grantDelay = 50 * time.Second // as if the holders were killed, too
		}

		p, q := w.startProcess(), w.startProcess()
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
			q.sweepForJobs()
			time.Sleep(time.Minute)
		}

		jobs, listErr := q.List(t.Context())
		if err != nil && listErr == nil && len(jobs) == 0 {
			return // the job was not created
		}

		if listErr != nil || len(jobs) != 1 {
			t.Fatalf("got the jobs %+v, %v, want 1 job and no error", jobs, listErr)
		}

		j := q.waitForState(jobs[0].ID, replay.Done, time.Minute)
		if j.Matched != 20 || j.Replayed != 16 || j.Delivered != 16 || j.Refused != 4 ||
			j.Skipped != 0 {
			t.Errorf("got %+v, want Matched 20, Replayed 16, Delivered 16, Refused 4 and Skipped 0",
				j)
		}

		w.checkOrder()

		if len(w.listRequested()) != 16 || len(w.listFinished()) == 0 {
			t.Errorf("got %d requests and %d calls of Finished, want 16 requests and at least 1 call",
				len(w.listRequested()), len(w.listFinished()))
		}
	})
}

// brokenCalls is larger than the number of calls to storage that the job of runWithFault makes, so
// that each call fails once.
const brokenCalls = 150

func TestRunner_Crash(t *testing.T) {
	for n := 1; n <= brokenCalls; n++ {
		for _, kind := range []storagetest.FaultKind{storagetest.FailBefore,
			storagetest.FailAfter} {
			t.Run(fmt.Sprint(n, " ", kind), func(t *testing.T) { runWithFault(t, n, kind, true) })
		}
	}
}

func TestRunner_OneCallFails(t *testing.T) {
	for n := 1; n <= brokenCalls; n++ {
		for _, kind := range []storagetest.FaultKind{storagetest.FailBefore,
			storagetest.FailAfter} {
			t.Run(fmt.Sprint(n, " ", kind), func(t *testing.T) { runWithFault(t, n, kind, false) })
		}
	}
}

// A process loses the lease of its job, and another process continues the job. Each replay must
// still be requested only once.
func TestRunner_TwoAtOnce(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(40, keys...)
		p, q := w.startProcess(), w.startProcess()
		j := p.startJob(plain)
		time.Sleep(5 * time.Second)
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Port == "leases" {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})

		q.sweepForJobs()
		j = q.waitForState(j.ID, replay.Done, 3*time.Minute)
		if j.Delivered != 200 || len(w.listRequested()) != 200 {
			t.Errorf("got %+v, want Delivered 200 and 200 requests", j)
		}

		w.checkOrder()
	})
}

// A process stalls for a minute while it requests replays, and meanwhile another process resumes
// the job. When the first process goes on, storage must refuse its writes of the job.
func TestRunner_Stalled(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(40, keys...)
		p, q := w.startProcess(), w.startProcess()
		spec := plain
		spec.RatePerMinute = 60
		j := p.startJob(spec)
		time.Sleep(38 * time.Second) // the job requests the next replays two seconds later
		p.stalls <- time.Minute
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Port == "leases" {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})

		time.Sleep(20 * time.Second)
		q.sweepForJobs()
		if len(p.stalls) != 0 {
			t.Fatal("got no request within 20s that stalls, want one")
		}

		last := int64(0)
		for range 60 {
			time.Sleep(time.Second)
			got, err := q.Get(t.Context(), j.ID)
			if err != nil || got.Replayed < last {
				t.Fatalf("got %+v, %v, want Replayed at least %d and no error", got, err, last)
			}
			last = got.Replayed
		}

		j = q.waitForState(j.ID, replay.Done, 5*time.Minute)
		if j.Replayed != 200 || j.Delivered != 200 || len(w.listRequested()) != 200 {
			t.Errorf("got %+v, want Replayed 200, Delivered 200 and 200 requests", j)
		}

		w.checkOrder()
	})
}

// After Close a process requests no further replay, and another process can resume the jobs of the
// closed process.
func TestRunner_Close(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(40, keys...)
		p := w.startProcess()
		j := p.startJob(plain)
		time.Sleep(5 * time.Second)
		p.stop()
		n := len(w.listRequested())
		time.Sleep(time.Minute)

		if len(w.listRequested()) != n || n == 0 || n == 200 {
			t.Errorf("got %d requests before Close and %d a minute later, want the same number, from 1 to 199", n,
				len(w.listRequested()))
		}

		p.sweepForJobs() // does nothing, because p is closed
		q := w.startProcess()
		q.sweepForJobs()
		if j = q.waitForState(j.ID, replay.Done, time.Minute); j.Delivered != 200 {
			t.Errorf("got %+v, want Delivered 200", j)
		}

		w.checkOrder()
	})
}

// A process is killed after it has written the job's final row, and before it has removed the job's
// row in lane 0. The job is over, and the next sweep removes the row in lane 0.
func TestRunner_KilledAtTheEnd(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(1, keys...)
		p, q := w.startProcess(), w.startProcess()
		gone := false
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if gone = gone || c.Op == "Transact" && c.Ops[0].Kind == storage.Delete; gone {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})

		j := q.waitForState(p.startJob(plain).ID, replay.Done, time.Minute)
		time.Sleep(time.Minute)
		p.stop()
		if jobs, err := jobrow.ReadAll(t.Context(), w.store); err != nil || len(jobs) != 1 {
			t.Fatalf("got %v, %v, want 1 job and no error", jobs, err)
		}

		if all, err := q.List(t.Context()); err != nil || len(all) != 1 || all[0] != j {
			t.Errorf("got %+v, %v, want one job, %+v, and no error", all, err, j)
		}

		before := len(w.listFinished())
		q.sweepForJobs()
		time.Sleep(time.Minute)
		if jobs, err := jobrow.ReadAll(t.Context(), w.store); err != nil || len(jobs) != 0 {
			t.Errorf("got %v, %v, want 0 jobs and no error", jobs, err)
		}

		if reported := w.listFinished(); len(reported) != before+1 || reported[before] != j {
			t.Errorf("got the calls of Finished %+v, want %d, the last with %+v", reported,
				before+1, j)
		}
	})
}
