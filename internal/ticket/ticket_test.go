package ticket_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/ticket"
)

type setup struct {
	now    time.Time
	queue  *memory.Queue
	faults *storagetest.Faults
	bell   *ticket.Bell
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	s := &setup{now: time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC), faults: storagetest.NewFaults()}
	now := func() time.Time { return s.now }
	s.queue = memory.New(now).Queue("tickets")
	s.bell = ticket.New(ticket.Config{Queue: s.faults.Queue(s.queue), Epoch: 1, MaxDelay: 10 * time.Second, Now: now})
	return s
}

func (s *setup) length(t *testing.T) int64 {
	t.Helper()
	n, err := s.queue.Length(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestBell_Ring(t *testing.T) {
	t.Parallel()
	t.Run("AHundredTimesPutsOne", func(t *testing.T) {
		t.Parallel()
		s := newSetup(t)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if err := s.bell.Ring(t.Context(), 3); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := s.length(t); n != 1 {
			t.Errorf("%d tickets", n)
		}
	})
	t.Run("LanesAreIndependent", func(t *testing.T) {
		t.Parallel()
		s := newSetup(t)
		for lane := range 4 {
			s.bell.Ring(t.Context(), lane)
		}
		if n := s.length(t); n != 4 {
			t.Errorf("%d tickets", n)
		}
	})
	t.Run("NeededEarlierPutsAnother", func(t *testing.T) {
		t.Parallel()
		s := newSetup(t)
		s.bell.RingAt(t.Context(), 0, s.now.Add(time.Minute))
		s.bell.Ring(t.Context(), 0)
		s.bell.RingAt(t.Context(), 0, s.now.Add(2*time.Minute)) // one comes before: enough
		if n := s.length(t); n != 2 {
			t.Errorf("%d tickets", n)
		}
	})
	t.Run("SeenOrLongPastRingsAgain", func(t *testing.T) {
		t.Parallel()
		s := newSetup(t)
		s.bell.Ring(t.Context(), 0)
		s.now = s.now.Add(20 * time.Second)
		s.bell.Ring(t.Context(), 0)
		if n := s.length(t); n != 1 {
			t.Fatalf("visible and not taken: %d tickets", n)
		}
		s.bell.Seen(0)
		s.bell.Ring(t.Context(), 0)
		if n := s.length(t); n != 2 {
			t.Fatalf("after it was seen: %d tickets", n)
		}
		s.now = s.now.Add(2 * time.Minute)
		s.bell.Ring(t.Context(), 0)
		if n := s.length(t); n != 3 {
			t.Errorf("long past, so another instance has it: %d tickets", n)
		}
	})
	t.Run("AFailedPutIsTriedByTheNextRing", func(t *testing.T) {
		t.Parallel()
		for _, kind := range []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter} {
			s := newSetup(t)
			s.faults.Once(func(storagetest.Call) bool { return true }, storagetest.Fault{Kind: kind})
			err := s.bell.Ring(t.Context(), 0)
			var want *storage.Error
			if !errors.As(err, &want) {
				t.Errorf("error %v", err)
			}
			before := s.length(t)
			if err := s.bell.Ring(t.Context(), 0); err != nil || s.length(t) != before+1 {
				t.Errorf("second ring: %v, %d tickets after %d", err, s.length(t), before)
			}
		}
	})
	t.Run("PutBackIsAboutTheTimeGiven", func(t *testing.T) {
		t.Parallel()
		s := newSetup(t)
		s.bell.PutBack(t.Context(), 0, 20*time.Second)
		s.now = s.now.Add(14 * time.Second)
		if got, _ := s.queue.Get(t.Context(), 1, time.Second); len(got) != 0 {
			t.Errorf("visible after 14 s")
		}
		s.now = s.now.Add(12 * time.Second)
		if got, _ := s.queue.Get(t.Context(), 1, time.Second); len(got) != 1 {
			t.Errorf("not visible after 26 s")
		}
	})
}

func TestDecode(t *testing.T) {
	t.Parallel()
	if e, l, err := ticket.Decode(ticket.Encode(2, 17)); e != 2 || l != 17 || err != nil {
		t.Errorf("round trip: %d %d %v", e, l, err)
	}
	for _, text := range []string{"", "weir lane", "weir lane 1", "weir lane 1.x", "weir lane 1.2 ", " weir lane 1.2", "weir lane 01.2", "weir lane 1.-2", "weir lane -1.2", `{"lane":1}`, "1.2"} {
		if _, _, err := ticket.Decode(text); err == nil {
			t.Errorf("%q was taken for a ticket", text)
		}
	}
}
