package replay_test

import (
	"testing"
	"time"

	"weir/internal/replay"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// A message that dies again during a job must not be replayed a second time. The runner's clock is
// ahead, so the second death has an earlier time than the start of the job.
func TestRunner_AHolderBehind(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(1, "/a")
		w.grantDelay, w.outcomeOf = 300*time.Millisecond,
			func(string) weir.Stage { return weir.Dead }
		time.Sleep(time.Second)
		p := w.startProcess()
		p.Now = func() time.Time { return time.Now().Add(1500 * time.Millisecond) }
		time.AfterFunc(400*time.Millisecond, w.grantRequests)

		if j := p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute); j.Matched != 1 ||
			j.Replayed != 1 ||
			j.Refused != 0 || j.DeadAgain != 1 {
			t.Errorf("got %+v, want Matched 1, Replayed 1, Refused 0 and DeadAgain 1", j)
		}
	})
}

// A job replays its messages in portions. The messages of a key are replayed without a pause, even
// if they need several portions. The next key must then wait until the job's average rate is not
// above Spec.RatePerMinute.
func TestRunner_KeyOfManyPortions(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(120, "/a")
		w.addDead(1, "/b")
		p := w.startProcess()
		spec := plain
		spec.RatePerMinute = 60
		p.waitForState(p.startJob(spec).ID, replay.Done, 5*time.Minute)
		list := w.listRequested()
		if took := list[119].at.Sub(list[0].at); len(list) != 121 || took > time.Second {
			t.Errorf("got %d requests, the first 120 within %s; want 121 requests, the first 120 within 1s", len(list),
				took)
		}

		if took := list[120].at.Sub(list[0].at); took < 2*time.Minute ||
			took > 2*time.Minute+time.Second {
			t.Errorf("got the request of the next key after %s, want 2m to %v", took,
				2*time.Minute+time.Second)
		}
	})
}

// A job saves each portion before it replays the messages of the portion. If the job cannot save a
// portion, it must replay none of the portion's messages. Otherwise the job would not count these
// replays after a crash.
func TestRunner_PortionNotSaved(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(10, "/a")
		p, q := w.startProcess(), w.startProcess()
		saves := 0
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Transact" && c.Ops[0].Kind == storage.Replace &&
				c.Ops[0].Key[:8] == "!replay_" {
				if saves++; saves == 2 { // the first save stores the number of messages
					return storagetest.Fault{Kind: storagetest.FailBefore}
				}
			}

			if len(w.listRequested()) == 5 {
				p.kill()
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}

			return storagetest.Fault{}
		})

		id := p.startJob(plain).ID
		time.Sleep(time.Minute)
		q.sweepForJobs()

		if j := q.waitForState(id, replay.Done, time.Minute); j.Matched != 10 || j.Replayed != 10 ||
			j.Skipped != 0 {
			t.Errorf("got %+v, want Matched 10, Replayed 10 and Skipped 0", j)
		}

		w.checkOrder()
	})
}
