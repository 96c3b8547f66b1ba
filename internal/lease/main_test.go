package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weir/internal/lease"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A lease of 15 s has a margin of 2 s, so it is trusted for 13 s. The lease is renewed every 5 s,
// and a renewal has a time limit of 2.5 s.
const (
	length  = 15 * time.Second
	window  = 13 * time.Second
	renewal = 5 * time.Second
	instant = time.Millisecond
)

// setup has storage with faults, and a wall clock that the test can set.
type setup struct {
	inner  *memory.Leases
	faults *storagetest.Faults
	ahead  atomic.Int64 // nanoseconds that readWallClock adds to the time
	cfg    lease.Config
}

// newSetup must be called in a bubble of package synctest, because it uses virtual time.
func newSetup() *setup {
	s := &setup{inner: memory.New(time.Now).Leases(), faults: storagetest.NewFaults()}
	s.cfg = lease.Config{Leases: s.faults.Leases(s.inner), Length: length, Now: s.readWallClock}
	return s
}

// readWallClock returns the time of the wall clock, without a monotonic reading.
func (s *setup) readWallClock() time.Time {
	return time.Now().Round(0).Add(time.Duration(s.ahead.Load()))
}

func (s *setup) mustAcquire(t *testing.T) *lease.Lease {
	t.Helper()
	l, err := lease.Acquire(t.Context(), s.cfg, "lane")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { l.Release(context.Background()) })
	return l
}

// isFree reports whether another process can acquire the lease now.
func (s *setup) isFree(t *testing.T) bool {
	t.Helper()
	const other = "00000000-0000-4000-8000-000000000000"
	if err := s.inner.Acquire(t.Context(), "lane", other, length); err != nil {
		if !storage.Is(err, storage.Conflict) {
			t.Fatalf("got %v, want an error of kind Conflict", err)
		}
		return false
	}

	if err := s.inner.Release(t.Context(), "lane", other); err != nil {
		t.Fatal(err)
	}

	return true
}

// breakAll makes every call of the method "op" fail with a fault of the given kind.
func (s *setup) breakAll(op string, kind storagetest.FaultKind) {
	s.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if c.Op == op {
			return storagetest.Fault{Kind: kind}
		}
		return storagetest.Fault{}
	})
}

// isLost reports whether the lease's context has ended with ErrLost and Trusted returns false.
func isLost(l *lease.Lease) bool {
	return context.Cause(l.Context()) == lease.ErrLost && !l.Trusted()
}

func isTrusted(l *lease.Lease) bool { return l.Context().Err() == nil && l.Trusted() }

// hooked counts renewals. It calls onAnswer, if set, after storage has answered a renewal and
// before Renew returns.
type hooked struct {
	storage.Leases
	renews   atomic.Int64
	onAnswer func(ctx context.Context)
}

func (h *hooked) Renew(ctx context.Context, name, id string) error {
	h.renews.Add(1)
	err := h.Leases.Renew(ctx, name, id)
	if h.onAnswer != nil {
		h.onAnswer(ctx)
	}
	return err
}

func passTime(d time.Duration) { <-time.After(d) }

// passTimeAndSettle lets virtual time pass, and then waits until all goroutines are blocked.
func passTimeAndSettle(d time.Duration) {
	passTime(d)
	synctest.Wait()
}
