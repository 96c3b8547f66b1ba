package ticket_test

import (
	"maps"
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/ticket"
)

// setup has the Sender of one instance with its queue. A test sets the clock and the random number.
// The default random number leads to a delay of 5 s.
type setup struct {
	now    time.Time
	random float64
	queue  *memory.Queue
	faults *storagetest.Faults
	cfg    ticket.Config
	sender *ticket.Sender
}

func newSetup() *setup {
	s := &setup{now: time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC), random: 0.5,
		faults: storagetest.NewFaults()}
	now := func() time.Time { return s.now }
	s.queue = memory.New(now).Queue("tickets")
	s.cfg = ticket.Config{Queue: s.faults.Queue(s.queue), Epoch: 4, Now: now,
		Rand: func() float64 { return s.random }}
	s.sender = ticket.New(s.cfg)

	return s
}

func (s *setup) passTime(d time.Duration) { s.now = s.now.Add(d) }

func (s *setup) enqueueTicket(t *testing.T, lane int) {
	t.Helper()
	if err := s.sender.Enqueue(t.Context(), lane); err != nil {
		t.Fatal(err)
	}
}

func (s *setup) enqueueAt(t *testing.T, needed time.Time) {
	t.Helper()
	if err := s.sender.EnqueueAt(t.Context(), 0, needed); err != nil {
		t.Fatal(err)
	}
}

// wantPut checks the number of tickets in the queue, visible or not.
func (s *setup) wantPut(t *testing.T, want int64) {
	t.Helper()
	if got, err := s.queue.Length(t.Context()); err != nil || got != want {
		t.Fatalf("%d tickets, want %d (error %v)", got, want, err)
	}
}

// takeVisible deletes the visible tickets, as a host does after receiving them, and returns their
// texts.
func (s *setup) takeVisible(t *testing.T) []string {
	t.Helper()
	got, err := s.queue.Get(t.Context(), 32, time.Minute)
	if err != nil {
		t.Fatal(err)
	}

	var texts []string
	for _, m := range got {
		texts = append(texts, m.Text)
		if err := s.queue.Delete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}

	return texts
}

var enqueueTests = map[string]func(t *testing.T, s *setup){
	"NamesTheLane": func(t *testing.T, s *setup) {
		s.enqueueTicket(t, 3)
		s.passTime(10 * time.Second)
		if got := s.takeVisible(t); len(got) != 1 || got[0] != ticket.Encode(4, 3) {
			t.Errorf("got the tickets %q, want one of epoch 4, lane 3", got)
		}
	},
	"AHundredTimesPutsOne": func(t *testing.T, s *setup) {
		for range 100 {
			s.enqueueTicket(t, 3)
			s.passTime(50 * time.Millisecond)
		}
		s.wantPut(t, 1)
	},
	"AHundredTimesWithUnevenDelaysPutsOne": func(t *testing.T, s *setup) {
		// 1.35 s, rounded up to 2 s: longer than MaxDelay
		s.cfg.MaxDelay, s.random = 1500*time.Millisecond, 0.9
		s.sender = ticket.New(s.cfg)
		for range 100 {
			s.enqueueTicket(t, 3)
		}

		s.wantPut(t, 1)
	},
	"LanesAreIndependent": func(t *testing.T, s *setup) {
		for lane := range 4 {
			s.enqueueTicket(t, lane)
			s.enqueueTicket(t, lane)
		}

		s.wantPut(t, 4)
		s.passTime(10 * time.Second)
		s.sender.MarkReceived(2)
		for lane := range 4 {
			s.enqueueTicket(t, lane)
		}

		s.wantPut(t, 5)
	},
	"TheDelayIsDrawnBetweenTheBounds": func(t *testing.T, s *setup) {
		s.cfg.MinDelay, s.cfg.MaxDelay, s.random = 4*time.Second, 8*time.Second, 0.75
		s.sender = ticket.New(s.cfg)
		s.enqueueTicket(t, 0)
		s.passTime(7*time.Second - 1)
		if got := s.takeVisible(t); len(got) != 0 {
			t.Errorf("got %d tickets before their time, want none", len(got))
		}

		s.passTime(1)
		if got := s.takeVisible(t); len(got) != 1 {
			t.Errorf("got %d tickets at their time, want 1", len(got))
		}
	},
	"NeededEarlierPutsAnother": func(t *testing.T, s *setup) {
		s.enqueueAt(t, s.now.Add(time.Minute))
		s.enqueueTicket(t, 0)
		s.wantPut(t, 2)
		s.enqueueAt(t, s.now.Add(2*time.Minute)) // both pending tickets become visible earlier
		s.wantPut(t, 2)
	},
	"ReceivedWhenVisiblePutsAnother": func(t *testing.T, s *setup) {
		s.enqueueTicket(t, 0)
		s.passTime(5 * time.Second)
		s.sender.MarkReceived(0)
		s.enqueueTicket(t, 0)
		s.wantPut(t, 2)
	},
	"ReceivedBeforeVisiblePutsNone": func(t *testing.T, s *setup) {
		s.enqueueTicket(t, 0)
		s.sender.MarkReceived(0)
		s.enqueueTicket(t, 0)
		s.wantPut(t, 1)
	},
	"ReceivedASecondEarlyPutsAnother": func(t *testing.T, s *setup) {
		s.enqueueTicket(t, 0)
		// the queue's clock can be ahead, so the queue shows the ticket early
		s.passTime(4 * time.Second)
		s.sender.MarkReceived(0)
		s.enqueueTicket(t, 0)
		s.wantPut(t, 2)
	},
	"DefaultsSuffice": func(t *testing.T, s *setup) {
		s.sender = ticket.New(ticket.Config{Queue: s.queue, MinDelay: time.Minute})
		s.enqueueTicket(t, 0)
		s.enqueueTicket(t, 0)
		s.wantPut(t, 1)
		s.passTime(time.Minute - 1)
		if got := s.takeVisible(t); len(got) != 0 {
			t.Errorf("got %d tickets before MinDelay, want none", len(got))
		}

		s.passTime(1)
		if got := s.takeVisible(t); len(got) != 1 {
			t.Errorf("got %d tickets after MinDelay, which bounds MaxDelay, want 1", len(got))
		}
	},
	"VisibleAndNotReceivedCountsForAMinute": func(t *testing.T, s *setup) {
		s.enqueueTicket(t, 0)
		s.passTime(65*time.Second - 1)
		s.enqueueTicket(t, 0)
		s.wantPut(t, 1)
		s.passTime(1)
		s.enqueueTicket(t, 0)
		s.wantPut(t, 2)
	},
	"TheNextCallPutsATicketAfterAFailure": func(t *testing.T, s *setup) {
		s.faults.Once(func(storagetest.Call) bool { return true },
			storagetest.Fault{Kind: storagetest.FailBefore})
		if err := s.sender.Enqueue(t.Context(), 0); !storage.Is(err, storage.Unavailable) {
			t.Fatalf("error %v, want an error of kind Unavailable", err)
		}

		s.wantPut(t, 0)
		s.enqueueTicket(t, 0)
		s.wantPut(t, 1)
	},
	"TheNextCallPutsATicketAfterALostAnswer": func(t *testing.T, s *setup) {
		s.faults.Once(func(storagetest.Call) bool { return true },
			storagetest.Fault{Kind: storagetest.FailAfter})
		if err := s.sender.Enqueue(t.Context(), 0); !storage.Is(err, storage.Ambiguous) {
			t.Fatalf("error %v, want an error of kind Ambiguous", err)
		}

		s.enqueueTicket(t, 0)
		s.enqueueTicket(t, 0)
		s.wantPut(t, 2) // the ticket whose answer was lost, and a second ticket
	},
	"AFailedPutLeavesTheOtherTicketsPending": func(t *testing.T, s *setup) {
		s.enqueueAt(t, s.now.Add(time.Minute))
		s.faults.Once(func(storagetest.Call) bool { return true },
			storagetest.Fault{Kind: storagetest.FailBefore})
		if err := s.sender.Enqueue(t.Context(), 0); err == nil {
			t.Fatal("Enqueue = no error, want one")
		}

		s.enqueueAt(t, s.now.Add(time.Minute))
		s.wantPut(t, 1)
	},
}

func TestSender_Enqueue(t *testing.T) {
	t.Parallel()
	for name, test := range enqueueTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newSetup())
		})
	}
}

func TestSender_AllLanes(t *testing.T) {
	t.Parallel()
	const most = 8 // the largest number of tickets for single lanes
	tests := map[string]func(t *testing.T, s *setup){
		"OneTicketInThePlaceOfTheNinthAndAllLaterOnes": func(t *testing.T, s *setup) {
			for lane := range 1000 {
				s.enqueueTicket(t, lane)
			}

			s.wantPut(t, most+1)
			s.passTime(10 * time.Second)
			want := map[string]bool{ticket.Encode(4, ticket.AllLanes): true}
			for lane := range most {
				want[ticket.Encode(4, lane)] = true
			}

			got := map[string]bool{}
			for _, text := range s.takeVisible(t) {
				got[text] = true
			}

			if !maps.Equal(got, want) {
				t.Errorf("tickets %v, want %v", got, want)
			}
		},
		"NeededEarlierPutsAnother": func(t *testing.T, s *setup) {
			for lane := range most + 1 {
				if err := s.sender.Requeue(t.Context(), lane, time.Minute); err != nil {
					t.Fatal(err)
				}
			}

			s.wantPut(t, most+1)
			for lane := range 1000 {
				s.enqueueTicket(t, lane)
			}

			s.wantPut(t, most+2)
		},
		"AReceivedTicketMakesRoom": func(t *testing.T, s *setup) {
			for lane := range most {
				s.enqueueTicket(t, lane)
			}

			s.passTime(10 * time.Second)
			s.takeVisible(t)
			s.sender.MarkReceived(3)
			s.enqueueTicket(t, 100)
			s.passTime(10 * time.Second)

			if got, want := s.takeVisible(t), ticket.Encode(4, 100); len(got) != 1 ||
				got[0] != want {
				t.Errorf("tickets %q, want %q", got, want)
			}
		},
		"AReceivedTicketForAllLanesPutsAnother": func(t *testing.T, s *setup) {
			for lane := range most + 1 {
				s.enqueueTicket(t, lane)
			}

			s.passTime(10 * time.Second)
			s.sender.MarkReceived(ticket.AllLanes)
			s.enqueueTicket(t, 100)
			s.wantPut(t, most+2)
		},
		"AFailedPutLeavesNoPendingTicket": func(t *testing.T, s *setup) {
			for lane := range most {
				s.enqueueTicket(t, lane)
			}

			s.faults.Once(func(storagetest.Call) bool { return true },
				storagetest.Fault{Kind: storagetest.FailBefore})
			if err := s.sender.Enqueue(t.Context(), 100); !storage.Is(err, storage.Unavailable) {
				t.Fatalf("error %v, want an error of kind Unavailable", err)
			}

			s.enqueueTicket(t, 101)
			s.wantPut(t, most+1)
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newSetup())
		})
	}
}

func TestSender_WithoutDelay(t *testing.T) {
	t.Parallel()
	s := newSetup()
	s.cfg.NoDelay, s.cfg.CountsFor = true, 2*time.Second
	s.sender = ticket.New(s.cfg)
	s.enqueueTicket(t, 0)
	if got := s.takeVisible(t); len(got) != 1 {
		t.Fatalf("%d tickets are visible at once, want 1", len(got))
	}

	s.passTime(2*time.Second - 1)
	s.enqueueTicket(t, 0)
	if got := s.takeVisible(t); len(got) != 0 {
		t.Errorf("%d tickets within two seconds, want none", len(got))
	}

	s.passTime(1)
	s.enqueueTicket(t, 0)
	if got := s.takeVisible(t); len(got) != 1 {
		t.Errorf("%d tickets after two seconds, want 1", len(got))
	}
}

func TestSender_EnqueueAt(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, s *setup){
		"TheSameTimePutsOne": func(t *testing.T, s *setup) {
			needed := s.now.Add(90500 * time.Millisecond) // the delay is rounded up to 91 s
			for range 100 {
				s.enqueueAt(t, needed)
				s.passTime(30 * time.Millisecond)
			}
			s.wantPut(t, 1)
		},
		"APastTimeIsNow": func(t *testing.T, s *setup) {
			for range 10 {
				s.enqueueAt(t, s.now.Add(-time.Hour))
			}

			s.wantPut(t, 1)
			if got := s.takeVisible(t); len(got) != 1 {
				t.Errorf("got %d tickets at once, want 1", len(got))
			}
		},
		"BeyondTheLongestDelayIsTheLongestDelay": func(t *testing.T, s *setup) {
			s.enqueueAt(t, s.now.Add(30*24*time.Hour))
			s.enqueueAt(t, s.now.Add(30*24*time.Hour))
			s.wantPut(t, 1)
			s.passTime(7 * 24 * time.Hour)
			if got := s.takeVisible(t); len(got) != 1 {
				t.Errorf("got %d tickets after seven days, want 1", len(got))
			}
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newSetup())
		})
	}
}

func TestSender_Requeue(t *testing.T) {
	t.Parallel()
	const about = 20 * time.Second
	putBack := func(t *testing.T, s *setup) {
		t.Helper()
		if err := s.sender.Requeue(t.Context(), 0, about); err != nil {
			t.Fatal(err)
		}
	}

	for random, want := range map[float64]time.Duration{0: 15 * time.Second, 0.5: about,
		1: 25 * time.Second} {
		t.Run("After"+want.String(), func(t *testing.T) {
			t.Parallel()
			s := newSetup()
			s.random = random
			putBack(t, s)
			s.passTime(want - 1)
			if got := s.takeVisible(t); len(got) != 0 {
				t.Errorf("got %d tickets before their time, want none", len(got))
			}

			s.passTime(1)
			if got := s.takeVisible(t); len(got) != 1 {
				t.Errorf("got %d tickets at their time, want 1", len(got))
			}
		})
	}

	t.Run("PutsNoneIfOneIsPending", func(t *testing.T) {
		t.Parallel()
		s := newSetup()
		s.enqueueTicket(t, 0)
		putBack(t, s)
		s.wantPut(t, 1)
	})

	t.Run("PutsNoneIfOneIsVisibleWithinFiveQuarters", func(t *testing.T) {
		t.Parallel()
		s := newSetup()
		s.enqueueAt(t, s.now.Add(about*6/5)) // later than the random delay, 20 s
		putBack(t, s)
		s.wantPut(t, 1)
	})

	t.Run("ALaneBusyForLongKeepsOneTicket", func(t *testing.T) {
		t.Parallel()
		s := newSetup()
		s.enqueueTicket(t, 0)

		for i := range 200 {
			s.random = float64(i%11) / 10
			s.passTime(time.Second)

			for range s.takeVisible(t) {
				s.sender.MarkReceived(0)
				putBack(t, s)
			}

			s.wantPut(t, 1)
		}
	})
}
