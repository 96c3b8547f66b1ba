package ticket_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"weir/internal/storage/storagetest"
)

func TestSender_Concurrent(t *testing.T) {
	t.Parallel()
	t.Run("CallsPutOneTicketForEachLane", func(t *testing.T) {
		t.Parallel()
		s := newSetup()
		var wg sync.WaitGroup
		for i := range 400 {
			wg.Go(func() {
				if err := s.sender.Enqueue(t.Context(), i%4); err != nil {
					t.Error(err)
				}
			})
		}

		wg.Wait()
		s.wantPut(t, 4)
	})

	t.Run("ACallDoesNotWaitForAnother", func(t *testing.T) {
		t.Parallel()
		s := newSetup()
		under := make(chan struct{})
		s.faults.Once(func(storagetest.Call) bool { close(under); return true },
			storagetest.Fault{Kind: storagetest.Hang})
		ctx, cancel := context.WithCancel(t.Context())
		hung := make(chan error)
		go func() { hung <- s.sender.Enqueue(ctx, 0) }()
		<-under
		s.enqueueTicket(t, 0) // if calls waited for each other, this call would hang
		s.wantPut(t, 0)
		cancel()
		if err := <-hung; err == nil {
			t.Error("Enqueue cut off = no error, want one")
		}

		s.enqueueTicket(t, 0)
		s.wantPut(t, 1)
	})

	t.Run("FailuresLeaveNoPendingTicket", func(t *testing.T) {
		t.Parallel()
		s := newSetup()
		var calls atomic.Int64
		s.faults.Set(func(storagetest.Call) storagetest.Fault {
			if calls.Add(1)%2 == 0 {
				return storagetest.Fault{}
			}
			return storagetest.Fault{Kind: storagetest.FailBefore}
		})

		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				s.sender.MarkReceived(0)
				s.sender.Enqueue(t.Context(), 0)
			})
		}

		wg.Wait()
		s.faults.Set(nil)
		s.enqueueTicket(t, 0)
		s.wantPut(t, 1)
	})
}
