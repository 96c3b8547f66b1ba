package poll_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/poll"
	"weir/internal/weir"
)

// script is a Sender that returns its results one after the other. Each attempt takes the Duration
// of its result.
type script struct {
	mu      sync.Mutex
	results []weir.Result
}

func (s *script) Send(context.Context, weir.Delivery) weir.Result {
	s.mu.Lock()
	r := s.results[0]
	s.results = s.results[1:]
	s.mu.Unlock()
	time.Sleep(r.Duration)
	return r
}

func TestMeter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{results: []weir.Result{
			{Outcome: weir.OutcomeDelivered, Duration: 100 * time.Millisecond},
			{Outcome: weir.OutcomeUnavailable, Duration: 10 * time.Second}, // not in the average
			{Outcome: weir.OutcomeRetry, Duration: 300 * time.Millisecond},
			{Outcome: weir.OutcomeNone, Duration: 5 * time.Second},
			{Outcome: weir.OutcomeRejected, Duration: 200 * time.Millisecond},
		}}

		m := poll.NewMeter(s, time.Now)
		if _, known := m.Average(); known {
			t.Error("Average without attempts returned true, want false")
		}

		for range len(s.results) {
			m.Send(t.Context(), weir.Delivery{})
		}

		if average, known := m.Average(); !known || average != 200*time.Millisecond {
			t.Errorf("got the average %s, %v; want 200ms, true", average, known)
		}

		if got := m.Counts(); got != (poll.Counts{Delivered: 1, Rejected: 1, Retried: 1,
			Unavailable: 1, Cut: 1}) {
			t.Errorf("got %+v, want %+v", got,
				(poll.Counts{Delivered: 1, Rejected: 1, Retried: 1, Unavailable: 1, Cut: 1}))
		}

		if got := m.Busy(); got != 15600*time.Millisecond {
			t.Errorf("got Busy %s, want 15.6s", got)
		}
	})
}

func TestMeter_TimeOfSeveralAtOnceCountsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{results: []weir.Result{{Duration: 3 * time.Second},
			{Duration: 3 * time.Second}}}
		m := poll.NewMeter(s, time.Now)
		var both sync.WaitGroup
		both.Go(func() { m.Send(t.Context(), weir.Delivery{}) })
		time.Sleep(2 * time.Second)
		both.Go(func() { m.Send(t.Context(), weir.Delivery{}) })
		time.Sleep(2 * time.Second)
		if got := m.Busy(); got != 4*time.Second {
			t.Errorf("Busy while an attempt is in flight = %s, want 4s", got)
		}

		both.Wait()
		if got := m.Busy(); got != 5*time.Second {
			t.Errorf("got Busy %s, want 5s", got)
		}
	})
}

func TestMeter_APanicEndsTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := poll.NewMeter(&script{}, time.Now)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("Send returned after a panic, want Send to pass the panic on, because the drain " +
						"makes a rejection of it")
				}
			}()

			m.Send(t.Context(), weir.Delivery{})
		}()

		time.Sleep(time.Minute)
		if got := m.Busy(); got != 0 {
			t.Errorf("got Busy %s, want 0", got)
		}
	})
}
