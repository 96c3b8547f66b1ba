package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lease"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
)

var trustCases = map[string]func(t *testing.T, s *setup){
	"RenewalsKeepIt": func(t *testing.T, s *setup) {
		renews := &hooked{Leases: s.cfg.Leases}
		s.cfg.Leases = renews
		start := time.Now()
		l := s.mustAcquire(t)
		for range 60 {
			passTimeAndSettle(time.Minute + instant)
			if !isTrusted(l) || s.isFree(t) {
				t.Fatalf("after %s: trusted %v, want the lease taken and trusted",
					time.Since(start), l.Trusted())
			}
		}

		if n := renews.renews.Load(); n != int64(time.Hour/renewal) {
			t.Errorf("%d renewals in an hour, want %v", n, int64(time.Hour/renewal))
		}
	},
	"TrustUntilMovesWithRenewals": func(t *testing.T, s *setup) {
		l := s.mustAcquire(t)
		if got, want := l.TrustUntil(), s.readWallClock().Add(window); !got.Equal(want) {
			t.Errorf("at first %s, want %s", got, want)
		}

		passTimeAndSettle(renewal + instant)
		if got, want := l.TrustUntil(), s.readWallClock().Add(window-instant); !got.Equal(want) {
			t.Errorf("renewed %s, want %s", got, want)
		}
	},
	"WithoutRenewalsItIsLostWhenTrustEnds": func(t *testing.T, s *setup) {
		l := s.mustAcquire(t)
		passTimeAndSettle(renewal + instant) // renewed at 5 s
		s.breakAll("Renew", storagetest.FailBefore)
		passTimeAndSettle(window - 2*instant)
		if !isTrusted(l) {
			t.Fatal("the lease ended early, want it trusted")
		}

		passTimeAndSettle(instant)

		if !isLost(l) {
			t.Fatalf("cause %v, trusted %v, want the lease lost", context.Cause(l.Context()),
				l.Trusted())
		}

		if s.isFree(t) {
			t.Error("the lease is free in storage when trust ends, want it taken")
		}
	},
	"AFailedRenewalIsTriedAgain": func(t *testing.T, s *setup) {
		l := s.mustAcquire(t)
		s.breakAll("Renew", storagetest.FailBefore)
		passTimeAndSettle(window - time.Second - instant)
		s.faults.Set(nil)
		passTimeAndSettle(time.Minute)
		if !isTrusted(l) {
			t.Errorf("cause %v, want the lease trusted", context.Cause(l.Context()))
		}
	},
	"ConflictEndsItAtOnce": func(t *testing.T, s *setup) {
		l := s.mustAcquire(t)
		conflict := storagetest.Fault{Kind: storagetest.FailBefore,
			Err: &storage.Error{Op: "lease renew", Kind: storage.Conflict}}
		s.faults.Once(func(c storagetest.Call) bool { return c.Op == "Renew" }, conflict)
		passTimeAndSettle(renewal - instant)
		if !isTrusted(l) {
			t.Fatal("the lease ended early, want it trusted")
		}

		passTimeAndSettle(instant)
		if !isLost(l) {
			t.Error("the lease is not lost, want its trust ended")
		}
	},
	"AHungRenewalLeavesTheTimerRunning": func(t *testing.T, s *setup) {
		l := s.mustAcquire(t)
		s.breakAll("Renew", storagetest.Hang)
		passTimeAndSettle(window - instant)
		if !isTrusted(l) {
			t.Fatal("the lease ended early, want it trusted")
		}

		passTimeAndSettle(instant)
		if !isLost(l) {
			t.Error("the lease is not lost, want its trust ended")
		}
	},
	"OneHungRenewalLeavesTimeForAnother": func(t *testing.T, s *setup) {
		l := s.mustAcquire(t)
		s.faults.Once(func(c storagetest.Call) bool { return c.Op == "Renew" },
			storagetest.Fault{Kind: storagetest.Hang})
		passTimeAndSettle(time.Minute)
		if !isTrusted(l) {
			t.Errorf("cause %v, want the lease trusted", context.Cause(l.Context()))
		}
	},
	"ALostAnswerExtendsNothing": func(t *testing.T, s *setup) {
		l := s.mustAcquire(t)
		s.breakAll("Renew", storagetest.FailAfter)
		passTimeAndSettle(window)
		if !isLost(l) || s.isFree(t) {
			t.Errorf("lost %v, free %v, want it lost and not free", isLost(l), s.isFree(t))
		}
	},
	"TrustCountsFromTheRequestOfALateAnswer": func(t *testing.T, s *setup) {
		const late = 2 * time.Second
		slow := &hooked{Leases: s.cfg.Leases, onAnswer: func(context.Context) { passTime(late) }}
		s.cfg.Leases = slow
		acquired := s.readWallClock()
		l := s.mustAcquire(t)
		passTimeAndSettle(renewal + late + instant)
		if got, want := l.TrustUntil(), acquired.Add(renewal+window); !got.Equal(want) {
			t.Errorf("trusted for %s, want %s", got.Sub(acquired), want.Sub(acquired))
		}
	},
	"AnAnswerAfterTheEndOfTrustRestoresNone": func(t *testing.T, s *setup) {
		// The answer to the first renewal comes late: trust and the renewal's time limit have
		// already ended.
		s.cfg.Leases = &hooked{Leases: s.cfg.Leases,
			onAnswer: func(context.Context) { passTime(window) }}
		l := s.mustAcquire(t)
		passTimeAndSettle(renewal + window + instant)
		if !isLost(l) {
			t.Error("the lease is trusted again, want it lost")
		}
	},
}

func TestLease_Trusted(t *testing.T) {
	t.Parallel()
	for name, test := range trustCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newSetup()) })
		})
	}
}

func TestLease_Trusted_Clocks(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, s *setup){
		"WallClockAheadIsNoticedByTrusted": func(t *testing.T, s *setup) {
			l := s.mustAcquire(t)
			s.ahead.Store(int64(window))
			if l.Trusted() {
				t.Fatal("the lease is trusted, want it lost: the machine may have slept")
			}

			if !isLost(l) {
				t.Error("the context goes on after Trusted was asked, want it ended")
			}
		},
		"WallClockAheadEndsTheContextWithinASecond": func(t *testing.T, s *setup) {
			l := s.mustAcquire(t)
			passTimeAndSettle(2500 * time.Millisecond)
			s.ahead.Store(int64(window))
			passTimeAndSettle(time.Second)
			if context.Cause(l.Context()) != lease.ErrLost {
				t.Error("the context goes on after the end of trust, want it ended without a call of Trusted")
			}
		},
		"WallClockALittleAheadShortensIt": func(t *testing.T, s *setup) {
			l := s.mustAcquire(t)
			s.breakAll("Renew", storagetest.FailBefore)
			s.ahead.Store(int64(3 * time.Second))
			passTimeAndSettle(window - 3*time.Second - instant)
			if !isTrusted(l) {
				t.Fatal("the lease ended early, want it trusted")
			}

			passTimeAndSettle(instant)
			if !isLost(l) {
				t.Error("the lease is not lost, want its trust ended")
			}
		},
		"WallClockSetBackProlongsNothing": func(t *testing.T, s *setup) {
			l := s.mustAcquire(t)
			s.breakAll("Renew", storagetest.FailBefore)
			s.ahead.Store(int64(-time.Hour))
			passTimeAndSettle(window)
			if !isLost(l) {
				t.Error("the lease is not lost, want its trust ended")
			}
		},
		"AnAnswerAfterASleepRestoresNoTrust": func(t *testing.T, s *setup) {
			// The machine sleeps during the renewal: the monotonic clock stops, and the wall clock
			// goes on. Trust ends before the answer comes, so the renewal must not extend trust.
			sleepy := &hooked{Leases: s.cfg.Leases,
				onAnswer: func(context.Context) { s.ahead.Store(int64(window - renewal)) }}
			s.cfg.Leases = sleepy
			l := s.mustAcquire(t)
			passTimeAndSettle(renewal)
			if !isLost(l) {
				t.Errorf("trusted again until %s, want it lost", l.TrustUntil())
			}
		},
		"LostStaysLostWhenTheClockIsPutRight": func(t *testing.T, s *setup) {
			l := s.mustAcquire(t)
			s.ahead.Store(int64(time.Hour))
			if l.Trusted() {
				t.Fatal("the lease is trusted an hour later, want it lost")
			}

			s.ahead.Store(0)
			if !isLost(l) {
				t.Error("the lease is trusted again, want it lost")
			}
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newSetup()) })
		})
	}
}
