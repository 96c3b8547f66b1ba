package drain

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/storage/storagetest"
)

// newRefresh returns a controlRefresh. The function endSession ends the session of the
// controlRefresh, and reads counts its reads.
func (p *sessionParts) newRefresh() (r *controlRefresh, endSession context.CancelFunc,
	reads *atomic.Int64) {
	open, end := context.WithCancel(p.t.Context())
	p.t.Cleanup(end)
	reads = &atomic.Int64{}
	p.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if c.Op == "Range" {
			reads.Add(1)
		}
		return storagetest.Fault{}
	})

	return &controlRefresh{laneScope: p.laneScope,
			waiter: &waiter{now: p.now, news: make(chan struct{}, 1), open: open}},
		end, reads
}

// failReads makes all further reads fail, each after the given time.
func (p *sessionParts) failReads(after time.Duration) {
	p.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if c.Op == "Range" {
			time.Sleep(after)
			return storagetest.Fault{Kind: storagetest.FailBefore}
		}
		return storagetest.Fault{}
	})
}

// pollControl begins a read if the last read is old enough, and returns the rows of each read once.
// The end of a read wakes the session.
func TestControlRefresh_Poll(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		r, _, reads := p.newRefresh()
		poll := func(step string, wantRead, wantEnded bool, wantReads int64) {
			t.Helper()
			c, isRead, hasEnded := r.pollControl(t.Context(), time.Second)
			synctest.Wait()

			if isRead != wantRead || hasEnded != wantEnded || reads.Load() != wantReads || isRead &&
				c.Tail.Fence != p.fence {
				t.Errorf("%s: got rows %t of fence %d, ended %t, %d reads; want %t of %d, %t, %d",
					step, isRead,
					c.Tail.Fence, hasEnded, reads.Load(), wantRead, p.fence, wantEnded, wantReads)
			}
		}

		poll("first", false, false, 1)
		if len(r.waiter.news) != 1 {
			t.Errorf("got %d wake-ups of the session after the read, want 1", len(r.waiter.news))
		}

		poll("with the rows", true, true, 1)
		poll("at once again", false, false, 1)
		time.Sleep(time.Second)
		poll("a second later", false, false, 2)
		p.failReads(0)
		poll("with the second rows", true, true, 2)
		time.Sleep(time.Second)
		poll("before a failure", false, false, 2)
		poll("with the failure", false, true, 2)
	})
}

// While a read hangs, no other read begins.
func TestControlRefresh_OneReadAtATime(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		r, _, _ := p.newRefresh()
		var hanging atomic.Int64
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op != "Range" {
				return storagetest.Fault{}
			}
			hanging.Add(1)
			return storagetest.Fault{Kind: storagetest.Hang}
		})

		ctx, cancel := context.WithCancel(t.Context())
		for range 5 {
			if _, isRead, hasEnded := r.pollControl(ctx, time.Second); isRead || hasEnded {
				t.Errorf("got rows %t, ended %t, want neither", isRead, hasEnded)
			}
			time.Sleep(10 * time.Second)
		}

		if hanging.Load() != 1 {
			t.Errorf("got %d reads at a time, want one", hanging.Load())
		}

		cancel()
		synctest.Wait()
	})
}

// await returns the rows of the read that is under way. If none is under way, await begins one.
func TestControlRefresh_Await(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		r, _, reads := p.newRefresh()
		for _, step := range []string{"first", "second"} {
			if c, isRead := r.await(t.Context()); !isRead || c.Tail.Fence != p.fence ||
				!r.askedAt.Equal(p.now()) {
				t.Errorf("%s: got rows %t of fence %d, asked at %s; want those of %d, asked now",
					step, isRead, c.Tail.Fence,
					r.askedAt, p.fence)
			}

			time.Sleep(time.Second)
		}

		r.pollControl(t.Context(), 0) // begins the third read
		if _, isRead := r.await(t.Context()); !isRead || reads.Load() != 3 {
			t.Errorf("got rows %t after %d reads, want those of the third", isRead, reads.Load())
		}
	})
}

// After a failed read, await pauses for the time controlRetry. Otherwise reads would follow each
// other without a pause while storage fails. Only the end of the session ends that pause early.
func TestControlRefresh_AwaitPausesAfterAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		readTakes, sessionEnds, took time.Duration
	}{
		"WholePause":           {0, time.Hour, controlRetry},
		"SessionEndsInPause":   {0, controlRetry / 2, controlRetry / 2},
		"SessionEndsInTheRead": {time.Hour, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			runWithParts(t, func(t *testing.T, p *sessionParts) {
				r, endSession, _ := p.newRefresh()
				p.failReads(c.readTakes)
				defer time.AfterFunc(c.sessionEnds, endSession).Stop()
				began := p.now()
				if _, isRead := r.await(t.Context()); isRead || p.now().Sub(began) != c.took {
					t.Errorf("got rows %t after %s, want none after %s", isRead,
						p.now().Sub(began), c.took)
				}

				p.faults.Set(nil)
				time.Sleep(c.readTakes) // the read ends
			})
		})
	}
}
