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

// setup is one instance's bell and its queue, with a clock and a die that can be set.
type setup struct {
	now    time.Time
	die    float64
	queue  *memory.Queue
	faults *storagetest.Faults
	cfg    ticket.Config
	bell   *ticket.Sender
}

func newSetup() *setup {
	s := &setup{now: time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC), die: 0.5, faults: storagetest.NewFaults()}
	now := func() time.Time { return s.now }
	s.queue = memory.New(now).Queue("tickets")
	s.cfg = ticket.Config{Queue: s.faults.Queue(s.queue), Epoch: 4, Now: now, Rand: func() float64 { return s.die }}
	s.bell = ticket.New(s.cfg)
	return s
}

func (s *setup) pass(d time.Duration) { s.now = s.now.Add(d) }

func (s *setup) ring(t *testing.T, lane int) {
	t.Helper()
	if err := s.bell.Enqueue(t.Context(), lane); err != nil {
		t.Fatal(err)
	}
}

func (s *setup) ringAt(t *testing.T, needed time.Time) {
	t.Helper()
	if err := s.bell.EnqueueAt(t.Context(), 0, needed); err != nil {
		t.Fatal(err)
	}
}

// wantPut checks how many tickets have been put so far, visible or not.
func (s *setup) wantPut(t *testing.T, want int64) {
	t.Helper()
	if got, err := s.queue.Length(t.Context()); err != nil || got != want {
		t.Fatalf("%d tickets, want %d (error %v)", got, want, err)
	}
}

// take is the host's poll: it gives the visible tickets' texts, and deletes them.
func (s *setup) take(t *testing.T) []string {
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
		s.ring(t, 3)
		s.pass(10 * time.Second)
		if got := s.take(t); len(got) != 1 || got[0] != ticket.Encode(4, 3) {
			t.Errorf("tickets %q", got)
		}
	},
	"AHundredTimesPutsOne": func(t *testing.T, s *setup) {
		for range 100 {
			s.ring(t, 3)
			s.pass(50 * time.Millisecond)
		}
		s.wantPut(t, 1)
	},
	"AHundredTimesWithUnevenDelaysPutsOne": func(t *testing.T, s *setup) {
		s.cfg.MaxDelay, s.die = 1500*time.Millisecond, 0.9 // rounded up: later than MaxDelay
		s.bell = ticket.New(s.cfg)
		for range 100 {
			s.ring(t, 3)
		}
		s.wantPut(t, 1)
	},
	"LanesAreIndependent": func(t *testing.T, s *setup) {
		for lane := range 4 {
			s.ring(t, lane)
			s.ring(t, lane)
		}
		s.wantPut(t, 4)
		s.pass(10 * time.Second)
		s.bell.MarkReceived(2)
		for lane := range 4 {
			s.ring(t, lane)
		}
		s.wantPut(t, 5)
	},
	"TheDelayIsDrawnBetweenTheBounds": func(t *testing.T, s *setup) {
		s.cfg.MinDelay, s.cfg.MaxDelay, s.die = 4*time.Second, 8*time.Second, 0.75
		s.bell = ticket.New(s.cfg)
		s.ring(t, 0)
		s.pass(7*time.Second - 1)
		if got := s.take(t); len(got) != 0 {
			t.Error("visible too early")
		}
		s.pass(1)
		if got := s.take(t); len(got) != 1 {
			t.Error("not visible in time")
		}
	},
	"NeededEarlierPutsAnother": func(t *testing.T, s *setup) {
		s.ringAt(t, s.now.Add(time.Minute))
		s.ring(t, 0)
		s.wantPut(t, 2)
		s.ringAt(t, s.now.Add(2*time.Minute)) // one comes before that anyway
		s.wantPut(t, 2)
	},
	"VisibleAndSeenRingsAgain": func(t *testing.T, s *setup) {
		s.ring(t, 0)
		s.pass(5 * time.Second)
		s.bell.MarkReceived(0)
		s.ring(t, 0)
		s.wantPut(t, 2)
	},
	"AnothersTicketSeenLeavesWhatIsStillToCome": func(t *testing.T, s *setup) {
		s.ring(t, 0)
		s.bell.MarkReceived(0)
		s.ring(t, 0)
		s.wantPut(t, 1)
	},
	"SeenASecondEarlyCounts": func(t *testing.T, s *setup) {
		s.ring(t, 0)
		s.pass(4 * time.Second) // the queue's clock is not ours
		s.bell.MarkReceived(0)
		s.ring(t, 0)
		s.wantPut(t, 2)
	},
	"DefaultsSuffice": func(t *testing.T, s *setup) {
		s.bell = ticket.New(ticket.Config{Queue: s.queue, MinDelay: time.Minute})
		s.ring(t, 0)
		s.ring(t, 0)
		s.wantPut(t, 1)
		s.pass(time.Minute - 1)
		if got := s.take(t); len(got) != 0 {
			t.Error("visible before MinDelay")
		}
		s.pass(1)
		if got := s.take(t); len(got) != 1 {
			t.Error("not visible after MinDelay, which bounds MaxDelay")
		}
	},
	"VisibleAndUnseenCountsForAMinute": func(t *testing.T, s *setup) {
		s.ring(t, 0)
		s.pass(65*time.Second - 1)
		s.ring(t, 0)
		s.wantPut(t, 1)
		s.pass(1)
		s.ring(t, 0)
		s.wantPut(t, 2)
	},
	"AFailedPutIsTriedByTheNextRing": func(t *testing.T, s *setup) {
		s.faults.Once(func(storagetest.Call) bool { return true },
			storagetest.Fault{Kind: storagetest.FailBefore})
		if err := s.bell.Enqueue(t.Context(), 0); !storage.Is(err, storage.Unavailable) {
			t.Fatalf("error %v", err)
		}
		s.wantPut(t, 0)
		s.ring(t, 0)
		s.wantPut(t, 1)
	},
	"APutOfUnknownFateIsTriedByTheNextRing": func(t *testing.T, s *setup) {
		s.faults.Once(func(storagetest.Call) bool { return true }, storagetest.Fault{Kind: storagetest.FailAfter})
		if err := s.bell.Enqueue(t.Context(), 0); !storage.Is(err, storage.Ambiguous) {
			t.Fatalf("error %v", err)
		}
		s.ring(t, 0)
		s.ring(t, 0)
		s.wantPut(t, 2) // the one that did arrive, and the one we know of
	},
	"AFailedPutLeavesTheOtherNotes": func(t *testing.T, s *setup) {
		s.ringAt(t, s.now.Add(time.Minute))
		s.faults.Once(func(storagetest.Call) bool { return true },
			storagetest.Fault{Kind: storagetest.FailBefore})
		if err := s.bell.Enqueue(t.Context(), 0); err == nil {
			t.Fatal("no error")
		}
		s.ringAt(t, s.now.Add(time.Minute))
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
	const most = 8 // tickets of single lanes
	tests := map[string]func(t *testing.T, s *setup){
		"OneTicketInThePlaceOfTheNinthAndAllBehindIt": func(t *testing.T, s *setup) {
			for lane := range 1000 {
				s.ring(t, lane)
			}
			s.wantPut(t, most+1)
			s.pass(10 * time.Second)
			want := map[string]bool{ticket.Encode(4, ticket.AllLanes): true}
			for lane := range most {
				want[ticket.Encode(4, lane)] = true
			}
			got := map[string]bool{}
			for _, text := range s.take(t) {
				got[text] = true
			}
			if !maps.Equal(got, want) {
				t.Errorf("tickets %v, want %v", got, want)
			}
		},
		"NeededEarlierPutsAnother": func(t *testing.T, s *setup) {
			for lane := range most + 1 {
				if err := s.bell.Requeue(t.Context(), lane, time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			s.wantPut(t, most+1)
			for lane := range 1000 {
				s.ring(t, lane)
			}
			s.wantPut(t, most+2)
		},
		"SeenMakesRoom": func(t *testing.T, s *setup) {
			for lane := range most {
				s.ring(t, lane)
			}
			s.pass(10 * time.Second)
			s.take(t)
			s.bell.MarkReceived(3)
			s.ring(t, 100)
			s.pass(10 * time.Second)
			if got, want := s.take(t), ticket.Encode(4, 100); len(got) != 1 || got[0] != want {
				t.Errorf("tickets %q, want %q", got, want)
			}
		},
		"SeenRingsAllAgain": func(t *testing.T, s *setup) {
			for lane := range most + 1 {
				s.ring(t, lane)
			}
			s.pass(10 * time.Second)
			s.bell.MarkReceived(ticket.AllLanes)
			s.ring(t, 100)
			s.wantPut(t, most+2)
		},
		"AFailedPutLeavesNoNote": func(t *testing.T, s *setup) {
			for lane := range most {
				s.ring(t, lane)
			}
			s.faults.Once(func(storagetest.Call) bool { return true },
				storagetest.Fault{Kind: storagetest.FailBefore})
			if err := s.bell.Enqueue(t.Context(), 100); !storage.Is(err, storage.Unavailable) {
				t.Fatalf("error %v", err)
			}
			s.ring(t, 101)
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
	s.bell = ticket.New(s.cfg)
	s.ring(t, 0)
	if got := s.take(t); len(got) != 1 {
		t.Fatalf("%d tickets are visible at once, want 1", len(got))
	}
	s.pass(2*time.Second - 1)
	s.ring(t, 0)
	if got := s.take(t); len(got) != 0 {
		t.Errorf("%d tickets within two seconds, want none", len(got))
	}
	s.pass(1)
	s.ring(t, 0)
	if got := s.take(t); len(got) != 1 {
		t.Errorf("%d tickets after two seconds, want 1", len(got))
	}
}

func TestSender_EnqueueAt(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, s *setup){
		"TheSameMomentPutsOne": func(t *testing.T, s *setup) {
			needed := s.now.Add(90500 * time.Millisecond) // the queue makes 91 s of it
			for range 100 {
				s.ringAt(t, needed)
				s.pass(30 * time.Millisecond)
			}
			s.wantPut(t, 1)
		},
		"APastMomentIsNow": func(t *testing.T, s *setup) {
			for range 10 {
				s.ringAt(t, s.now.Add(-time.Hour))
			}
			s.wantPut(t, 1)
			if got := s.take(t); len(got) != 1 {
				t.Error("not visible at once")
			}
		},
		"BeyondTheQueuesReachIsAsFarAsItGoes": func(t *testing.T, s *setup) {
			s.ringAt(t, s.now.Add(30*24*time.Hour))
			s.ringAt(t, s.now.Add(30*24*time.Hour))
			s.wantPut(t, 1)
			s.pass(7 * 24 * time.Hour)
			if got := s.take(t); len(got) != 1 {
				t.Error("not visible after seven days")
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
		if err := s.bell.Requeue(t.Context(), 0, about); err != nil {
			t.Fatal(err)
		}
	}
	for die, want := range map[float64]time.Duration{0: 15 * time.Second, 0.5: about, 1: 25 * time.Second} {
		t.Run("After"+want.String(), func(t *testing.T) {
			t.Parallel()
			s := newSetup()
			s.die = die
			putBack(t, s)
			s.pass(want - 1)
			if got := s.take(t); len(got) != 0 {
				t.Error("visible too early")
			}
			s.pass(1)
			if got := s.take(t); len(got) != 1 {
				t.Error("not visible in time")
			}
		})
	}
	t.Run("OneComesAnyway", func(t *testing.T) {
		t.Parallel()
		s := newSetup()
		s.ring(t, 0)
		putBack(t, s)
		s.wantPut(t, 1)
	})
	t.Run("OneComesWithinItsTime", func(t *testing.T) {
		t.Parallel()
		s := newSetup()
		s.ringAt(t, s.now.Add(about*6/5)) // later than the delay drawn
		putBack(t, s)
		s.wantPut(t, 1)
	})
	t.Run("ALaneBusyForLongKeepsOneTicket", func(t *testing.T) {
		t.Parallel()
		s := newSetup()
		s.ring(t, 0)
		for i := range 200 {
			s.die = float64(i%11) / 10
			s.pass(time.Second)
			for range s.take(t) {
				s.bell.MarkReceived(0)
				putBack(t, s)
			}
			s.wantPut(t, 1)
		}
	})
}

func TestSender_EnqueueAsync(t *testing.T) {
	t.Parallel()
	t.Run("PutsOneHoweverOften", func(t *testing.T) {
		t.Parallel()
		s := newSetup()
		for range 10 {
			s.bell.EnqueueAsync(0)
		}
		s.bell.Wait(t.Context())
		s.wantPut(t, 1)
		s.pass(10 * time.Second)
		if got := s.take(t); len(got) != 1 {
			t.Errorf("took %v", got)
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
		s.bell.EnqueueAsync(0)
		close(stuck)
		s.bell.Wait(t.Context())
		s.faults.Set(nil)
		s.bell.EnqueueAsync(0) // the first was not put, so it does not count
		s.bell.Wait(t.Context())
		s.wantPut(t, 1)
	})
}

// A ticket that was taken by another instance is of no use to a lane that has to move, or to an
// invocation that has to be relieved here.
func TestSender_EnqueueNowAndRelief(t *testing.T) {
	t.Parallel()
	type step struct {
		pass    time.Duration
		ring    func(*ticket.Sender, *testing.T) error
		tickets int64 // put so far
	}
	now := func(b *ticket.Sender, t *testing.T) error { return b.EnqueueNow(t.Context(), 0) }
	relieve := func(b *ticket.Sender, t *testing.T) error { return b.EnqueueRelief(t.Context(), 0) }
	plain := func(b *ticket.Sender, t *testing.T) error { return b.Enqueue(t.Context(), 0) } // visible after 5 s
	all := func(b *ticket.Sender, t *testing.T) error { return b.EnqueueNow(t.Context(), ticket.AllLanes) }
	for name, steps := range map[string][]step{
		"NowDoesNotWaitForAHiddenOne":       {{0, plain, 1}, {0, now, 2}},
		"NowDoesNotRelyOnOneThatWasVisible": {{0, plain, 1}, {7 * time.Second, now, 2}},
		"NowPutsOneASecond":                 {{0, now, 1}, {0, now, 1}, {2 * time.Second, now, 2}},
		"NowIsPartOfOneForAllLanes":         {{0, all, 1}, {0, now, 1}},
		"ReliefComesByAHiddenOne":           {{0, plain, 1}, {0, relieve, 1}},
		"ReliefComesByOneThatIsJustVisible": {{0, plain, 1}, {10 * time.Second, relieve, 1}},
		"ReliefNeedsAnotherAfterSomeTime":   {{0, plain, 1}, {16 * time.Second, relieve, 2}, {15 * time.Second, relieve, 3}},
		"OthersGoOnToRelyOnIt":              {{0, relieve, 1}, {30 * time.Second, plain, 1}, {31 * time.Second, plain, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup()
			for _, step := range steps {
				s.pass(step.pass)
				if err := step.ring(s.bell, t); err != nil {
					t.Fatal(err)
				}
				s.wantPut(t, step.tickets)
			}
		})
	}
}
