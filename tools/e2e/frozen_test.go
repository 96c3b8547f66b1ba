package e2e_test

import (
	"syscall"
	"testing"
	"time"
)

// frozenFor is longer than the lease (15 s) and the settle time (2 s) together.
const frozenFor = 25 * time.Second

// TestHandlerFrozen_NothingIsLost stops the holder's process as a debugger, a snapshot of its
// machine or a full machine does, and lets it go on when another process has its lane. A frozen
// process notices nothing: it must not write on.
func TestHandlerFrozen_NothingIsLost(t *testing.T) {
	s := newSystem(t, 2, "lease: 30s", "lease: 15s")
	s.runWithKills(func(int) { s.freezeHolder() })
}

// freezeHolder stops the holder of lane 0 by SIGSTOP, and lets it go on after frozenFor.
func (s *system) freezeHolder() {
	s.t.Helper()
	s.hasKilled.Store(true)
	s.awaitCondition("a holder is frozen", time.Minute, func() bool {
		for _, i := range getJSON[hostStatus](s, s.weir+"/admin/host/status").Instances {
			if i.PID > 0 && i.holdsLane(0) && syscall.Kill(i.PID, syscall.SIGSTOP) == nil {
				s.t.Logf("froze instance %d", i.Number)
				timer := time.AfterFunc(frozenFor,
					func() { _ = syscall.Kill(i.PID, syscall.SIGCONT) })
				s.t.Cleanup(func() {
					if timer.Stop() {
						_ = syscall.Kill(i.PID, syscall.SIGCONT)
					}
				})

				return true
			}
		}

		return false
	})
}
