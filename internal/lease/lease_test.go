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

var acquireCases = map[string]func(t *testing.T, s *setup){
	"OfTwoOneIsBusy": func(t *testing.T, s *setup) {
		first := s.mustAcquire(t)
		if _, err := lease.Acquire(t.Context(), s.cfg, "lane"); !errors.Is(err, lease.ErrBusy) {
			t.Errorf("second: %v, want %v", err, lease.ErrBusy)
		}

		other, err := lease.Acquire(t.Context(), s.cfg, "another lane")
		if err != nil {
			t.Fatalf("Acquire of another lane = %v, want no error", err)
		}

		other.Release(t.Context())
		if !isTrusted(first) {
			t.Error("the first lease is not trusted, want it trusted")
		}
	},
	"ALostAnswerIsRecovered": func(t *testing.T, s *setup) {
		s.faults.Once(isAcquire, storagetest.Fault{Kind: storagetest.FailAfter})
		if l := s.mustAcquire(t); !isTrusted(l) || s.isFree(t) {
			t.Errorf("trusted %t, free %t, want the lease taken", isTrusted(l), s.isFree(t))
		}
	},
	"AHungAnswerIsRecoveredAndTrustCountsFromTheSecondRequest": func(t *testing.T, s *setup) {
		s.faults.Once(isAcquire, storagetest.Fault{Kind: storagetest.HangAfter})
		start := time.Now()
		l := s.mustAcquire(t)
		if took := time.Since(start); took > length/3 {
			t.Errorf("took %s, want at most %v", took, length/3)
		}

		if want := s.readWallClock().Add(window); !l.TrustUntil().Equal(want) {
			t.Errorf("trusted until %s, want %s", l.TrustUntil(), want)
		}
	},
	"WithoutAnAnswerTheLeaseIsReleased": func(t *testing.T, s *setup) {
		s.breakAll("Acquire", storagetest.FailAfter)
		_, err := lease.Acquire(t.Context(), s.cfg, "lane")
		if !storage.Is(err, storage.Ambiguous) || !s.isFree(t) {
			t.Errorf("error %v, free %v, want an error of kind Ambiguous and a free lease", err,
				s.isFree(t))
		}
	},
	"AfterALostAnswerAndAnErrorTheLeaseIsReleased": func(t *testing.T, s *setup) {
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
		if !storage.Is(err, storage.Unavailable) || !s.isFree(t) {
			t.Errorf("error %v, free %v, want an error of kind Unavailable and a free lease", err,
				s.isFree(t))
		}
	},
	"AfterACancellationTheLeaseIsReleased": func(t *testing.T, s *setup) {
		s.faults.Once(isAcquire, storagetest.Fault{Kind: storagetest.HangAfter})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := lease.Acquire(ctx, s.cfg, "lane"); err == nil || !s.isFree(t) {
			t.Errorf("error %v, free %v, want an error and a free lease", err, s.isFree(t))
		}
	},
	"StorageDownIsNotBusy": func(t *testing.T, s *setup) {
		s.breakAll("Acquire", storagetest.FailBefore)
		_, err := lease.Acquire(t.Context(), s.cfg, "lane")
		if !storage.Is(err, storage.Unavailable) || errors.Is(err, lease.ErrBusy) {
			t.Errorf("error %v, want an error of kind Unavailable and another error than %v", err,
				lease.ErrBusy)
		}
	},
	"BadConfigIsRefused": func(t *testing.T, s *setup) {
		for _, c := range []lease.Config{{Length: 14 * time.Second}, {Length: 61 * time.Second},
			{Length: length, Margin: 8 * time.Second}, {Length: length, Margin: -1}} {
			c.Leases = s.cfg.Leases
			if l, err := lease.Acquire(t.Context(), c, "lane"); err == nil {
				l.Release(t.Context())
				t.Errorf("length %s, margin %s: taken, want an error", c.Length, c.Margin)
			}
		}
	},
	"DefaultsSuffice": func(t *testing.T, s *setup) {
		// a failed renewal must not panic, although Config.Log is nil
		s.breakAll("Renew", storagetest.FailBefore)
		l, err := lease.Acquire(t.Context(),
			lease.Config{Leases: s.cfg.Leases, Length: time.Minute}, "lane")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Release(t.Context())
		passTimeAndSettle(54*time.Second - instant) // the margin is 6 s, a tenth of the length
		if !isTrusted(l) {
			t.Error("the lease ended early, want it trusted")
		}

		passTimeAndSettle(instant)
		if !isLost(l) {
			t.Error("the lease is not lost, want its trust ended")
		}
	},
}

func TestAcquire(t *testing.T) {
	t.Parallel()
	for name, test := range acquireCases {
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
			first := s.mustAcquire(t)
			if err := first.Release(t.Context()); err != nil {
				t.Fatal(err)
			}

			if cause := context.Cause(first.Context()); cause != context.Canceled ||
				first.Trusted() {
				t.Errorf("cause %v, trusted %v, want context.Canceled and no trust", cause,
					first.Trusted())
			}

			if second := s.mustAcquire(t); !isTrusted(second) {
				t.Error("the second lease is not trusted, want it trusted")
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
				t.Errorf("trusted %v, cause %v, want no trust and context.Canceled",
					l.Trusted(), context.Cause(l.Context()))
			}

			if err := l.Release(ctx); err != nil || !s.isFree(t) {
				t.Errorf("error %v, free %v, want a free lease", err, s.isFree(t))
			}
		},
		"AfterLossIsHarmless": func(t *testing.T, s *setup) {
			lost := s.mustAcquire(t)
			s.breakAll("Renew", storagetest.FailBefore)
			passTimeAndSettle(length)
			s.faults.Set(nil)
			next := s.mustAcquire(t)
			if err := lost.Release(t.Context()); err != nil {
				t.Errorf("Release of the lost lease = %v, want no error", err)
			}

			if cause := context.Cause(lost.Context()); cause != lease.ErrLost {
				t.Errorf("cause %v, want %v", cause, lease.ErrLost)
			}

			if passTimeAndSettle(time.Minute); !isTrusted(next) || s.isFree(t) {
				t.Errorf("next trusted %t, free %t, want the next lease taken", isTrusted(next),
					s.isFree(t))
			}
		},
		"ASecondCallReturnsTheFirstResult": func(t *testing.T, s *setup) {
			l := s.mustAcquire(t)
			s.breakAll("Release", storagetest.FailBefore)
			first := l.Release(t.Context())
			s.faults.Set(nil)

			if second := l.Release(t.Context()); !storage.Is(first, storage.Unavailable) ||
				second != first {
				t.Errorf("first %v, second %v, want an error of kind Unavailable and %v", first,
					second, first)
			}
		},
		"GivesUpAfterFiveSeconds": func(t *testing.T, s *setup) {
			l := s.mustAcquire(t)
			s.breakAll("Release", storagetest.Hang)
			start := time.Now()
			if err := l.Release(t.Context()); err == nil || time.Since(start) != 5*time.Second {
				t.Errorf("error %v after %s, want an error and 5s", err, time.Since(start))
			}
		},
		"WaitsForARenewalThatIgnoresItsContext": func(t *testing.T, s *setup) {
			s.cfg.Leases = &hooked{Leases: s.cfg.Leases,
				onAnswer: func(context.Context) { passTime(3 * time.Second) }}
			l := s.mustAcquire(t)
			passTimeAndSettle(renewal + instant)
			start := time.Now()
			if err := l.Release(t.Context()); err != nil ||
				time.Since(start) != 3*time.Second-instant {
				t.Errorf("error %v after %s, want %v and no error", err, time.Since(start),
					3*time.Second-instant)
			}
		},
		"EndsARenewalInFlight": func(t *testing.T, s *setup) {
			l := s.mustAcquire(t)
			s.breakAll("Renew", storagetest.Hang)
			passTimeAndSettle(renewal + instant)
			start := time.Now()
			if err := l.Release(t.Context()); err != nil || time.Since(start) != 0 || !s.isFree(t) {
				t.Errorf("error %v after %s, free %v, want a free lease at once", err,
					time.Since(start), s.isFree(t))
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
