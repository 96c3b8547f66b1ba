package replay_test

import (
	"testing"
	"time"

	"weir/internal/replay"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// TestRunner_AHolderBehind: a message that dies again is not the job's, even if by its holder's clock it
// does so before the job began by the runner's clock.
func TestRunner_AHolderBehind(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(1, "/a")
		w.takes, w.ends = 300*time.Millisecond, func(string) weir.Stage { return weir.Dead }
		time.Sleep(time.Second)
		p := w.start()
		p.Now = func() time.Time { return time.Now().Add(1500 * time.Millisecond) }
		time.AfterFunc(400*time.Millisecond, w.grantRequests)
		if j := p.waitForState(p.startJob(plain).ID, replay.Done, time.Minute); j.Matched != 1 || j.Replayed != 1 ||
			j.Refused != 0 || j.DeadAgain != 1 {
			t.Errorf("got %+v, want Matched 1, Replayed 1, Refused 0 and DeadAgain 1", j)
		}
	})
}

// TestRunner_AKeyOfManyTurns: a key's messages go in one go, however many they are, and the
// next key waits until the rate has made up for them.
func TestRunner_AKeyOfManyTurns(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(120, "/a")
		w.addDead(1, "/b")
		p := w.start()
		spec := plain
		spec.RatePerMinute = 60
		p.waitForState(p.startJob(spec).ID, replay.Done, 5*time.Minute)
		list := w.listAsked()
		if took := list[119].at.Sub(list[0].at); len(list) != 121 || took > time.Second {
			t.Errorf("of %d, the 120 of a key took %s, want 121 and at most 1s", len(list), took)
		}
		if took := list[120].at.Sub(list[0].at); took < 2*time.Minute || took > 2*time.Minute+time.Second {
			t.Errorf("the next key came after %s, want 2m to %v", took, 2*time.Minute+time.Second)
		}
	})
}

// If the batch cannot be saved, no message of it is replayed: a process that died then would leave replays that no job
// counts.
func TestRunner_BatchNotSaved(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(10, "/a")
		p, q := w.start(), w.start()
		saves := 0
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Transact" && c.Ops[0].Kind == storage.Replace && c.Ops[0].Key[:8] == "!replay_" {
				if saves++; saves == 2 { // the first is of the count
					return storagetest.Fault{Kind: storagetest.FailBefore}
				}
			}
			if len(w.listAsked()) == 5 {
				p.kill()
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})
		id := p.startJob(plain).ID
		time.Sleep(time.Minute)
		q.sweepForJobs()
		if j := q.waitForState(id, replay.Done, time.Minute); j.Matched != 10 || j.Replayed != 10 || j.Skipped != 0 {
			t.Errorf("got %+v, want Matched 10, Replayed 10 and Skipped 0", j)
		}
		w.inOrder()
	})
}
