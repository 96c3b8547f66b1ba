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
		w.die(1, "/a")
		w.takes, w.ends = 300*time.Millisecond, func(string) weir.Stage { return weir.Dead }
		time.Sleep(time.Second)
		p := w.start()
		p.Now = func() time.Time { return time.Now().Add(1500 * time.Millisecond) }
		time.AfterFunc(400*time.Millisecond, w.grant)
		if j := p.comes(p.begin(plain).ID, replay.Done, time.Minute); j.Matched != 1 || j.Replayed != 1 ||
			j.Refused != 0 || j.DeadAgain != 1 {
			t.Errorf("got %+v, want j.Matched == 1 && j.Replayed == 1 && j.Refused == 0 && "+
				"j.DeadAgain == 1", j)
		}
	})
}

// TestRunner_AKeyOfManyTurns: a key's messages go in one go, however many they are, and the
// next key waits until the rate has made up for them.
func TestRunner_AKeyOfManyTurns(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.die(120, "/a")
		w.die(1, "/b")
		p := w.start()
		spec := plain
		spec.RatePerMinute = 60
		p.comes(p.begin(spec).ID, replay.Done, 5*time.Minute)
		list := w.list()
		if took := list[119].at.Sub(list[0].at); len(list) != 121 || took > time.Second {
			t.Errorf("of %d, the 120 of a key took %s", len(list), took)
		}
		if took := list[120].at.Sub(list[0].at); took < 2*time.Minute || took > 2*time.Minute+time.Second {
			t.Errorf("the next key came after %s", took)
		}
	})
}

// TestRunner_TurnNotWrittenDown: where it cannot be written down whose turn it is, nothing is
// replayed yet, or a process that dies then would leave what nobody counts.
func TestRunner_TurnNotWrittenDown(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.die(10, "/a")
		p, q := w.start(), w.start()
		saves := 0
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Transact" && c.Ops[0].Kind == storage.Replace && c.Ops[0].Key[:8] == "!replay_" {
				if saves++; saves == 2 { // the first is of the count
					return storagetest.Fault{Kind: storagetest.FailBefore}
				}
			}
			if len(w.list()) == 5 {
				p.kill()
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})
		id := p.begin(plain).ID
		time.Sleep(time.Minute)
		q.sweep()
		if j := q.comes(id, replay.Done, time.Minute); j.Matched != 10 || j.Replayed != 10 || j.Skipped != 0 {
			t.Errorf("got %+v, want j.Matched == 10 && j.Replayed == 10 && j.Skipped == 0", j)
		}
		w.inOrder()
	})
}
