package ticket_test

import (
	"testing"
	"time"

	"weir/internal/storage/storagetest"
	"weir/internal/ticket"
)

func TestSender_EnqueueAsync(t *testing.T) {
	t.Parallel()
	t.Run("PutsOneTicketForManyCalls", func(t *testing.T) {
		t.Parallel()
		s := newSetup()
		for range 10 {
			s.sender.EnqueueAsync(0)
		}

		s.sender.Wait(t.Context())
		s.wantPut(t, 1)
		s.passTime(10 * time.Second)
		if got := s.takeVisible(t); len(got) != 1 {
			t.Errorf("took %v, want one", got)
		}
	})

	t.Run("DoesNotWaitForTheQueue", func(t *testing.T) {
		t.Parallel()
		s := newSetup()
		stuck := make(chan struct{})
		s.faults.Set(func(storagetest.Call) storagetest.Fault {
			<-stuck
			return storagetest.Fault{Kind: storagetest.FailBefore}
		})

		s.sender.EnqueueAsync(0)
		close(stuck)
		s.sender.Wait(t.Context())
		s.faults.Set(nil)
		s.sender.EnqueueAsync(0) // the first put failed, so no ticket is pending
		s.sender.Wait(t.Context())
		s.wantPut(t, 1)
	})

	t.Run("IsVisibleAtOnceAfterLeave", func(t *testing.T) {
		t.Parallel()
		s := newSetup()
		s.enqueueTicket(t, 0) // visible after 5 s; takeVisible takes the ticket after 8 s
		s.sender.Leave()

		for round := range 3 {
			s.sender.EnqueueAsync(0)
			s.sender.EnqueueAsync(0)
			s.sender.Wait(t.Context())
			if got := s.takeVisible(t); len(got) != 1 {
				t.Errorf("took %q after round %d, want one", got, round)
			}

			s.passTime(8 * time.Second)
			s.takeVisible(t)
		}
	})
}

// After Leave, another instance can take a ticket as soon as the ticket is visible, look at the
// lane, and find no message. So a ticket must become visible after each message.
func TestSender_EnqueueAsync_AfterLeave(t *testing.T) {
	t.Parallel()

	// Messages are appended for five seconds (filing). After each message, a ticket must become
	// visible within three seconds (latest).
	const step, filing, latest = 100 * time.Millisecond, 5 * time.Second, 3 * time.Second
	for name, every := range map[string]time.Duration{"EachStep": step,
		"EachHalfSecond": 500 * time.Millisecond,
		"EachSecond":     time.Second, "Each1100ms": 1100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup()
			s.sender.Leave()

			// the times of messages after which no ticket has become visible yet
			var waiting []time.Duration
			taken := 0
			for at := time.Duration(0); at <= filing+latest; at += step {
				if got := s.takeVisible(t); len(got) > 0 {
					taken += len(got)
					waiting = nil
				}

				if len(waiting) > 0 && at-waiting[0] > latest {
					t.Fatalf("at %s no ticket has become visible after the message of %s, want one within %s", at,
						waiting[0], latest)
				}

				if at <= filing && at%every == 0 {
					s.sender.EnqueueAsync(0)
					s.sender.Wait(t.Context())
					waiting = append(waiting, at)
				}

				s.passTime(step)
			}

			if len(waiting) > 0 {
				t.Errorf("no ticket became visible after the messages of %v, want one", waiting)
			}

			if most := int((filing+latest)/time.Second) + 1; taken > most {
				t.Errorf("%d tickets, want %d at most: one a second", taken, most)
			}
		})
	}
}

// EnqueueNow does not rely on a visible ticket, because another instance can have taken the ticket.
// EnqueueRelief relies on a visible ticket for ten seconds only.
func TestSender_EnqueueNowAndRelief(t *testing.T) {
	t.Parallel()
	type step struct {
		pass    time.Duration // the time that passes before the call
		enqueue func(*ticket.Sender, *testing.T) error
		tickets int64 // number of tickets put so far
	}

	now := func(b *ticket.Sender, t *testing.T) error { return b.EnqueueNow(t.Context(), 0) }
	relieve := func(b *ticket.Sender, t *testing.T) error { return b.EnqueueRelief(t.Context(), 0) }

	// visible after 5 s
	plain := func(b *ticket.Sender, t *testing.T) error { return b.Enqueue(t.Context(), 0) }
	all := func(b *ticket.Sender, t *testing.T) error {
		return b.EnqueueNow(t.Context(),
			ticket.AllLanes)
	}
	for name, steps := range map[string][]step{
		"NowIgnoresAHiddenTicket":  {{0, plain, 1}, {0, now, 2}},
		"NowIgnoresAVisibleTicket": {{0, plain, 1}, {7 * time.Second, now, 2}},
		"NowPutsOneTicketAtOneTime": {{0, now, 1}, {0, now, 1},
			{500 * time.Millisecond, now, 2}},
		"NowReliesOnOneForAllLanes":        {{0, all, 1}, {0, now, 1}},
		"ReliefReliesOnAHiddenTicket":      {{0, plain, 1}, {0, relieve, 1}},
		"ReliefReliesOnAJustVisibleTicket": {{0, plain, 1}, {10 * time.Second, relieve, 1}},
		"ReliefPutsAnotherAfterTenSeconds": {{0, plain, 1}, {16 * time.Second, relieve, 2},
			{15 * time.Second, relieve, 3}},
		"EnqueueReliesOnReliefForAMinute": {{0, relieve, 1}, {30 * time.Second, plain, 1},
			{31 * time.Second, plain, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup()
			for _, step := range steps {
				s.passTime(step.pass)
				if err := step.enqueue(s.sender, t); err != nil {
					t.Fatal(err)
				}
				s.wantPut(t, step.tickets)
			}
		})
	}
}
