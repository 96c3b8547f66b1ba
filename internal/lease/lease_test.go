package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lease"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
)

func isAcquire(c storagetest.Call) bool { return c.Op == "Acquire" }

func TestAcquire(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, s *setup){
		"OfTwoOneIsBusy": func(t *testing.T, s *setup) {
			first := s.acquire(t)
			if _, err := lease.Acquire(t.Context(), s.cfg, "lane"); !errors.Is(err, lease.ErrBusy) {
				t.Errorf("second: %v", err)
			}
			other, err := lease.Acquire(t.Context(), s.cfg, "another lane")
			if err != nil {
				t.Fatalf("another lane: %v", err)
			}
			other.Release(t.Context())
			if !isTrusted(first) {
				t.Error("the first lost it")
			}
		},
		"ALostAnswerIsRecovered": func(t *testing.T, s *setup) {
			s.faults.Once(isAcquire, storagetest.Fault{Kind: storagetest.FailAfter})
			if l := s.acquire(t); !isTrusted(l) || s.free(t) {
				t.Error("not held")
			}
		},
		"AHungAnswerIsRecoveredAndCountsFromTheSecond": func(t *testing.T, s *setup) {
			s.faults.Once(isAcquire, storagetest.Fault{Kind: storagetest.HangAfter})
			start := time.Now()
			l := s.acquire(t)
			if took := time.Since(start); took > length/3 {
				t.Errorf("took %s", took)
			}
			if want := s.wall().Add(window); !l.TrustUntil().Equal(want) {
				t.Errorf("trusted until %s, want %s", l.TrustUntil(), want)
			}
		},
		"WithoutAnAnswerItIsGivenBack": func(t *testing.T, s *setup) {
			s.breakAll("Acquire", storagetest.FailAfter)
			_, err := lease.Acquire(t.Context(), s.cfg, "lane")
			if !storage.Is(err, storage.Ambiguous) || !s.free(t) {
				t.Errorf("error %v, free %v", err, s.free(t))
			}
		},
		"LostThenRefusedIsGivenBackToo": func(t *testing.T, s *setup) {
			calls := 0
			s.faults.Set(func(c storagetest.Call) storagetest.Fault {
				if !isAcquire(c) {
					return storagetest.Fault{}
				}
				if calls++; calls == 1 {
					return storagetest.Fault{Kind: storagetest.FailAfter}
				}
				return storagetest.Fault{Kind: storagetest.FailBefore}
			})
			_, err := lease.Acquire(t.Context(), s.cfg, "lane")
			if !storage.Is(err, storage.Unavailable) || !s.free(t) {
				t.Errorf("error %v, free %v", err, s.free(t))
			}
		},
		"CancelledWhileAskingGivesItBack": func(t *testing.T, s *setup) {
			s.faults.Once(isAcquire, storagetest.Fault{Kind: storagetest.HangAfter})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := lease.Acquire(ctx, s.cfg, "lane"); err == nil || !s.free(t) {
				t.Errorf("error %v, free %v", err, s.free(t))
			}
		},
		"StorageDownIsNotBusy": func(t *testing.T, s *setup) {
			s.breakAll("Acquire", storagetest.FailBefore)
			_, err := lease.Acquire(t.Context(), s.cfg, "lane")
			if !storage.Is(err, storage.Unavailable) || errors.Is(err, lease.ErrBusy) {
				t.Errorf("error %v", err)
			}
		},
		"BadConfigIsRefused": func(t *testing.T, s *setup) {
			for _, c := range []lease.Config{{Length: 14 * time.Second}, {Length: 61 * time.Second},
				{Length: length, Margin: 8 * time.Second}, {Length: length, Margin: -1}} {
				c.Leases = s.cfg.Leases
				if l, err := lease.Acquire(t.Context(), c, "lane"); err == nil {
					l.Release(t.Context())
					t.Errorf("length %s, margin %s: taken", c.Length, c.Margin)
				}
			}
		},
		"DefaultsSuffice": func(t *testing.T, s *setup) {
			s.breakAll("Renew", storagetest.FailBefore) // logged to nobody
			l, err := lease.Acquire(t.Context(), lease.Config{Leases: s.cfg.Leases, Length: time.Minute}, "lane")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Release(t.Context())
			wait(54*time.Second - instant) // a tenth is kept back
			if !isTrusted(l) {
				t.Error("ended early")
			}
			wait(instant)
			if !isLost(l) {
				t.Error("still trusted")
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

func TestLease_Release(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, s *setup){
		"LetsTheNextInAtOnce": func(t *testing.T, s *setup) {
			first := s.acquire(t)
			if err := first.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if cause := context.Cause(first.Context()); cause != context.Canceled || first.Trusted() {
				t.Errorf("cause %v, trusted %v", cause, first.Trusted())
			}
			if second := s.acquire(t); !isTrusted(second) {
				t.Error("the second has it not")
			}
		},
		"WorksWhenTheParentHasEnded": func(t *testing.T, s *setup) {
			ctx, cancel := context.WithCancel(t.Context())
			l, err := lease.Acquire(ctx, s.cfg, "lane")
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			synctest.Wait()
			if l.Trusted() || context.Cause(l.Context()) != context.Canceled {
				t.Errorf("trusted %v, cause %v", l.Trusted(), context.Cause(l.Context()))
			}
			if err := l.Release(ctx); err != nil || !s.free(t) {
				t.Errorf("error %v, free %v", err, s.free(t))
			}
		},
		"AfterLossIsHarmless": func(t *testing.T, s *setup) {
			lost := s.acquire(t)
			s.breakAll("Renew", storagetest.FailBefore)
			wait(length)
			s.faults.Set(nil)
			next := s.acquire(t)
			if err := lost.Release(t.Context()); err != nil {
				t.Errorf("release: %v", err)
			}
			if cause := context.Cause(lost.Context()); cause != lease.ErrLost {
				t.Errorf("cause %v", cause)
			}
			if wait(time.Minute); !isTrusted(next) || s.free(t) {
				t.Error("the next holder was put out")
			}
		},
		"TwiceIsOnce": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			s.breakAll("Release", storagetest.FailBefore)
			first := l.Release(t.Context())
			s.faults.Set(nil)
			if second := l.Release(t.Context()); !storage.Is(first, storage.Unavailable) || second != first {
				t.Errorf("first %v, second %v", first, second)
			}
		},
		"GivesUpAfterFiveSeconds": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			s.breakAll("Release", storagetest.Hang)
			start := time.Now()
			if err := l.Release(t.Context()); err == nil || time.Since(start) != 5*time.Second {
				t.Errorf("error %v after %s", err, time.Since(start))
			}
		},
		"WaitsForARenewalThatHeedsNoContext": func(t *testing.T, s *setup) {
			s.cfg.Leases = &hooked{Leases: s.cfg.Leases, before: func(context.Context) { pass(3 * time.Second) }}
			l := s.acquire(t)
			wait(renewal + instant)
			start := time.Now()
			if err := l.Release(t.Context()); err != nil || time.Since(start) != 3*time.Second-instant {
				t.Errorf("error %v after %s", err, time.Since(start))
			}
		},
		"EndsARenewalOnItsWay": func(t *testing.T, s *setup) {
			l := s.acquire(t)
			s.breakAll("Renew", storagetest.Hang)
			wait(renewal + instant)
			start := time.Now()
			if err := l.Release(t.Context()); err != nil || time.Since(start) != 0 || !s.free(t) {
				t.Errorf("error %v after %s, free %v", err, time.Since(start), s.free(t))
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
