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

func TestLease_Trusted(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, s *setup){
		"RenewalsKeepIt": func(t *testing.T, s *setup) {
			renews := &hooked{Leases: s.cfg.Leases}
			s.cfg.Leases = renews
			start := time.Now()
			l := s.acquire(t)
			for range 60 {
				wait(time.Minute + instant)
				if !isTrusted(l) || s.free(t) {
					t.Fatalf("after %s: trusted %v", time.Since(start), l.Trusted())
				}
			}
			if n := renews.renews.Load(); n != int64(time.Hour/renewal) {
				t.Errorf("%d renewals in an hour", n)
			}
		},
		"TrustUntilMovesWithRenewals": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			if got, want := l.TrustUntil(), s.wall().Add(window); !got.Equal(want) {
				t.Errorf("at first %s, want %s", got, want)
			}
			wait(renewal + instant)
			if got, want := l.TrustUntil(), s.wall().Add(window-instant); !got.Equal(want) {
				t.Errorf("renewed %s, want %s", got, want)
			}
		},
		"StorageDownEndsItAtTheMoment": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			wait(renewal + instant) // renewed at 5 s
			s.breakAll("Renew", storagetest.FailBefore)
			wait(window - 2*instant)
			if !isTrusted(l) {
				t.Fatal("ended early")
			}
			wait(instant)
			if !isLost(l) {
				t.Fatalf("cause %v, trusted %v", context.Cause(l.Context()), l.Trusted())
			}
			if s.free(t) {
				t.Error("storage gave the lease away before trust ended")
			}
		},
		"AFailedRenewalIsTriedAgain": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			s.breakAll("Renew", storagetest.FailBefore)
			wait(window - time.Second - instant)
			s.faults.Set(nil)
			wait(time.Minute)
			if !isTrusted(l) {
				t.Errorf("cause %v", context.Cause(l.Context()))
			}
		},
		"ConflictEndsItAtOnce": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			conflict := storagetest.Fault{Kind: storagetest.FailBefore,
				Err: &storage.Error{Op: "lease renew", Kind: storage.Conflict}}
			s.faults.Once(func(c storagetest.Call) bool { return c.Op == "Renew" }, conflict)
			wait(renewal - instant)
			if !isTrusted(l) {
				t.Fatal("ended early")
			}
			wait(instant)
			if !isLost(l) {
				t.Error("still trusted")
			}
		},
		"AHungRenewalLeavesTheTimerRunning": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			s.breakAll("Renew", storagetest.Hang)
			wait(window - instant)
			if !isTrusted(l) {
				t.Fatal("ended early")
			}
			wait(instant)
			if !isLost(l) {
				t.Error("still trusted")
			}
		},
		"OneHungRenewalLeavesTimeForAnother": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			s.faults.Once(func(c storagetest.Call) bool { return c.Op == "Renew" },
				storagetest.Fault{Kind: storagetest.Hang})
			wait(time.Minute)
			if !isTrusted(l) {
				t.Errorf("cause %v", context.Cause(l.Context()))
			}
		},
		"ALostAnswerExtendsNothing": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			s.breakAll("Renew", storagetest.FailAfter)
			wait(window)
			if !isLost(l) || s.free(t) {
				t.Errorf("lost %v, free %v", isLost(l), s.free(t))
			}
		},
		"ALateAnswerCountsFromWhenItWasAsked": func(t *testing.T, s *setup) {
			const late = 2 * time.Second
			slow := &hooked{Leases: s.cfg.Leases, before: func(context.Context) { pass(late) }}
			s.cfg.Leases = slow
			acquired := s.wall()
			l := s.acquire(t)
			wait(renewal + late + instant)
			if got, want := l.TrustUntil(), acquired.Add(renewal+window); !got.Equal(want) {
				t.Errorf("trusted for %s, want %s", got.Sub(acquired), want.Sub(acquired))
			}
		},
		"AnAnswerAfterTheEndBringsNothingBack": func(t *testing.T, s *setup) {
			// A port that does not keep to its context.
			s.cfg.Leases = &hooked{Leases: s.cfg.Leases, before: func(context.Context) { pass(window) }}
			l := s.acquire(t)
			wait(renewal + window + instant)
			if !isLost(l) {
				t.Error("trusted again")
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

func TestLease_Trusted_Clocks(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, s *setup){
		"WallClockAheadIsNoticedByAsking": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			s.ahead.Store(int64(window))
			if l.Trusted() {
				t.Fatal("trusted: the machine may have slept")
			}
			if !isLost(l) {
				t.Error("asked, and the context goes on")
			}
		},
		"WallClockAheadEndsTheContextWithinASecond": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			wait(2500 * time.Millisecond)
			s.ahead.Store(int64(window))
			wait(time.Second)
			if context.Cause(l.Context()) != lease.ErrLost {
				t.Error("nobody asked, and the context goes on")
			}
		},
		"WallClockALittleAheadShortensIt": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			s.breakAll("Renew", storagetest.FailBefore)
			s.ahead.Store(int64(3 * time.Second))
			wait(window - 3*time.Second - instant)
			if !isTrusted(l) {
				t.Fatal("ended early")
			}
			wait(instant)
			if !isLost(l) {
				t.Error("still trusted")
			}
		},
		"WallClockSetBackProlongsNothing": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			s.breakAll("Renew", storagetest.FailBefore)
			s.ahead.Store(int64(-time.Hour))
			wait(window)
			if !isLost(l) {
				t.Error("still trusted")
			}
		},
		"AnAnswerAfterASleepBringsNothingBack": func(t *testing.T, s *setup) {
			// It was asked before the end and would be worth something; nobody may use it.
			sleepy := &hooked{Leases: s.cfg.Leases,
				before: func(context.Context) { s.ahead.Store(int64(window - renewal)) }}
			s.cfg.Leases = sleepy
			l := s.acquire(t)
			wait(renewal)
			if !isLost(l) {
				t.Errorf("trusted again until %s", l.TrustUntil())
			}
		},
		"LostStaysLostWhenTheClockIsPutRight": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			s.ahead.Store(int64(time.Hour))
			if l.Trusted() {
				t.Fatal("trusted")
			}
			s.ahead.Store(0)
			if !isLost(l) {
				t.Error("trusted again")
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
