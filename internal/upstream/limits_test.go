package upstream_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/upstream"
	"weir/internal/weir"
)

// newLimited returns the Set of one process, with the upstream "a".
func newLimited(table storage.Table, rate upstream.Rate, quota int64) *upstream.Set {
	return upstream.NewSet([]upstream.Definition{{Name: "a", Rate: rate, DailyQuota: quota}},
		table, time.Now, &limits{})
}

// admitMessage reports whether the set admits a message of the upstream "a".
func admitMessage(t *testing.T, s *upstream.Set) bool {
	t.Helper()
	_, err := s.Admit(t.Context(), "a", "")
	if err != nil && weir.KindOf(err) != weir.Limited {
		t.Fatalf("got %v, want no error or Limited", err)
	}
	return err == nil
}

// countAdmitted asks the sets in turn to admit messages of the upstream "a", until all sets refuse.
// It returns the number of admitted messages.
func countAdmitted(t *testing.T, sets ...*upstream.Set) (n int) {
	t.Helper()
	for refused := 0; refused < len(sets); {
		refused = 0
		for _, s := range sets {
			if admitMessage(t, s) {
				n++
			} else {
				refused++
			}
		}
	}

	return n
}

func TestSet_Rate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newLimited(nil, upstream.Rate{Count: 5, Per: time.Second}, 0)
		if n := countAdmitted(t, s); n != 5 {
			t.Errorf("at once: got %d messages, want 5", n)
		}

		_, err := s.Admit(t.Context(), "a", "")
		var limited *weir.Error
		if !errors.As(err, &limited) || limited.RetryAfter != 200*time.Millisecond ||
			limited.Problems[0].Rule != "rate" ||
			!strings.Contains(limited.Message, "5 messages a second") {
			t.Errorf("got %+v, want an error of the rate of 5 messages a second with a RetryAfter of 200ms", limited)
		}

		admitted := 0
		for range 1000 { // ten times the rate, for 20 s
			time.Sleep(20 * time.Millisecond)
			if admitMessage(t, s) {
				admitted++
			}
		}

		if admitted != 100 {
			t.Errorf("in 20 s: got %d messages, want 100", admitted)
		}

		time.Sleep(time.Hour)
		if n := countAdmitted(t, s); n != 5 {
			t.Errorf("after an hour: got %d messages at once, want 5", n)
		}
	})
}

func TestSet_QuotaHoldsOverProcesses(t *testing.T) {
	t.Parallel()
	for _, quota := range []int64{1, 7, 100, 5000} {
		synctest.Test(t, func(t *testing.T) {
			table := memory.New(time.Now).Table()
			a, b := newLimited(table, upstream.Rate{}, quota),
				newLimited(table, upstream.Rate{}, quota)
			if n := countAdmitted(t, a, b); int64(n) != quota {
				t.Errorf("got %d messages, want %d", n, quota)
			}

			_, err := a.Admit(t.Context(), "a", "")
			var limited *weir.Error
			if !errors.As(err, &limited) || limited.RetryAfter != 24*time.Hour ||
				limited.Problems[0].Rule != "dailyQuota" {
				t.Errorf("got %+v, want an error of the daily quota with a RetryAfter until the next day",
					limited) // the virtual clock begins at 00:00 UTC
			}

			time.Sleep(24 * time.Hour)
			if n := countAdmitted(t, b, a); int64(n) != quota {
				t.Errorf("the next day: got %d messages, want %d", n, quota)
			}
		})
	}
}

// A process whose clock is a month fast writes a future day into the quota's row, and uses up that
// day's quota. Other processes must still get the quota of their own day. A process whose clock is
// a day slow takes its messages from the quota of the day in the row, so it must not get a second
// quota.
func TestSet_QuotaBesideAWrongClock(t *testing.T) {
	t.Parallel()
	table := memory.New(time.Now).Table()
	definitions := []upstream.Definition{{Name: "a", DailyQuota: 5}}
	at := func(now time.Time) *upstream.Set {
		return upstream.NewSet(definitions, table, func() time.Time { return now }, &limits{})
	}
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	if n := countAdmitted(t, at(noon.AddDate(0, 1, 0))); n != 5 {
		t.Errorf("a clock that is a month ahead: got %d messages, want 5", n)
	}

	if n := countAdmitted(t, at(noon)); n != 5 {
		t.Errorf("beside a clock that is a month ahead: got %d messages, want 5", n)
	}

	if n := countAdmitted(t, at(noon.Add(-13*time.Hour))); n != 0 {
		t.Errorf("a clock of the day before the day whose quota is used up: got %d messages, want none", n)
	}
}

func TestSet_QuotaUnderContention(t *testing.T) {
	t.Parallel()
	table := memory.New(time.Now).Table()
	const quota = 500
	var sets []*upstream.Set
	now := func() time.Time { return time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC) }
	for range 4 {
		sets = append(sets, upstream.NewSet([]upstream.Definition{{Name: "a", DailyQuota: quota}},
			table, now, &limits{}))
	}

	var mu sync.Mutex
	admitted := 0
	var all sync.WaitGroup
	for i := range 1200 {
		all.Go(func() {
			for {
				settle, err := sets[i%4].Admit(t.Context(), "a", "")
				if weir.KindOf(err) == weir.Unavailable && err != nil {
					// other sets wrote the row during each try; a client would send the message
					// again
					continue
				}

				mu.Lock()
				defer mu.Unlock()

				if err == nil && i%10 == 0 {
					settle(weir.NotAppended)
				} else if err == nil {
					admitted++
				}

				return
			}
		})
	}

	all.Wait()

	if rest := countAdmitted(t, sets...); admitted > quota || admitted+rest != quota {
		t.Errorf("got %d messages under contention and %d afterwards, want %d together", admitted,
			rest, quota)
	}
}

// A process reserves a part of the quota before it admits messages. If the process is killed, the
// rest of the reserved part is lost for the day. If the process shuts down, it returns the rest.
func TestSet_QuotaOfProcessesThatEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := memory.New(time.Now).Table()
		const quota = 1000
		stopped, killed := newLimited(table, upstream.Rate{}, quota),
			newLimited(table, upstream.Rate{}, quota)

		for range 10 {
			if !admitMessage(t, stopped) || !admitMessage(t, killed) {
				t.Fatal("got a refusal of the first messages, want none")
			}
		}

		if err := stopped.ReturnReserved(t.Context()); err != nil {
			t.Fatal(err)
		}

		rest := countAdmitted(t, newLimited(table, upstream.Rate{}, quota))
		if total := rest + 20; total > quota || total < quota-quota/20 || total == quota {
			t.Errorf("got %d messages of a quota of %d; want fewer, because a process died, but at least 95 %%", total,
				quota)
		}

		if err := stopped.ReturnReserved(t.Context()); err != nil || admitMessage(t, stopped) {
			t.Errorf("after a second return: got the error %v, or another message; want no error and no message", err)
		}
	})
}

func TestSet_QuotaGivesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newLimited(memory.New(time.Now).Table(), upstream.Rate{}, 1)
		settle, err := s.Admit(t.Context(), "a", "")
		if err != nil || admitMessage(t, s) {
			t.Fatalf("got the error %v, or a second message; want one message", err)
		}

		settle(weir.NotAppended)
		settle, err = s.Admit(t.Context(), "a", "")
		if err != nil {
			t.Fatalf("after settle: got %v, want another message", err)
		}

		time.Sleep(24 * time.Hour)
		settle(weir.NotAppended) // a message of the previous day must not raise the new day's quota
		if n := countAdmitted(t, s); n != 1 {
			t.Errorf("the next day: got %d messages, want 1", n)
		}
	})
}

// A try whose answer was lost stays charged. Its repeat takes no other message of the quota,
// whatever the result of the repeat is. A repeat without a name is a submission of its own.
func TestSet_QuotaRemembersLostAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		submission string
		results    []weir.AppendResult
		want       int // messages that the tries have taken from the quota
	}{
		"Appended": {"m", []weir.AppendResult{weir.AppendUnknown, weir.Appended}, 1},
		"WasAppended": {"m",
			[]weir.AppendResult{weir.AppendUnknown, weir.AppendRepeated}, 1},
		"NotAppendedAtFirst": {"m",
			[]weir.AppendResult{weir.AppendUnknown, weir.NotAppended, weir.Appended}, 1},
		"LostAgain": {"m",
			[]weir.AppendResult{weir.AppendUnknown, weir.AppendUnknown, weir.Appended}, 1},
		"RepeatedLater": {"m",
			[]weir.AppendResult{weir.AppendUnknown, weir.Appended, weir.AppendRepeated}, 1},
		"TwoMessages": {"m",
			[]weir.AppendResult{weir.AppendUnknown, weir.Appended, weir.Appended}, 2},
		"NotAppended": {"m", []weir.AppendResult{weir.NotAppended, weir.NotAppended}, 0},
		"WithoutAName": {"",
			[]weir.AppendResult{weir.AppendUnknown, weir.AppendUnknown, weir.Appended}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLimited(memory.New(time.Now).Table(), upstream.Rate{}, 10)
			for _, result := range c.results {
				settle, err := s.Admit(t.Context(), "a", c.submission)
				if err != nil {
					t.Fatal(err)
				}
				settle(result)
			}

			if taken := 10 - countAdmitted(t, s); taken != c.want {
				t.Errorf("the results %v took %d messages, want %d", c.results, taken, c.want)
			}
		})
	}
}

// Two tries of one submission run at the same time, and both answers are lost. At most one message
// was stored.
func TestSet_QuotaRemembersASubmissionOnce(t *testing.T) {
	t.Parallel()
	s := newLimited(memory.New(time.Now).Table(), upstream.Rate{}, 10)
	first, err := s.Admit(t.Context(), "a", "m")
	if err != nil {
		t.Fatal(err)
	}

	second, err := s.Admit(t.Context(), "a", "m")
	if err != nil {
		t.Fatal(err)
	}

	first(weir.AppendUnknown)
	second(weir.AppendUnknown)
	if rest := countAdmitted(t, s); rest != 9 {
		t.Errorf("got %d messages left, want 9", rest)
	}
}

// A process remembers 10,000 lost answers of an upstream. Of more, it forgets as many, and charges
// their repeats again. On the next day it remembers none, because the messages are charged to the
// day of their repeat.
func TestSet_QuotaForgetsLostAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most, more, quota = 10_000, 500, 50_000
		s := newLimited(memory.New(time.Now).Table(), upstream.Rate{}, quota)
		repeatAll := func() {
			for i := range most + more {
				settle, err := s.Admit(t.Context(), "a", strconv.Itoa(i))
				if err != nil {
					t.Fatal(err)
				}
				settle(weir.AppendUnknown)
			}
		}

		repeatAll()
		repeatAll()

		if taken := quota - countAdmitted(t, s); taken < most+2*more || taken == 2*(most+more) {
			t.Errorf("%d lost answers and their repeats took %d messages, want %d or more, because %d are forgotten, "+
				"and fewer than %d", most+more, taken, most+2*more, more, 2*(most+more))
		}

		time.Sleep(24 * time.Hour)
		repeatAll()
		if rest := countAdmitted(t, s); rest != quota-most-more {
			t.Errorf("the next day: got %d messages left, want %d", rest, quota-most-more)
		}
	})
}

func TestSet_QuotaOfBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newLimited(memory.New(time.Now).Table(),
			upstream.Rate{Count: 1, Per: time.Minute}, 100)
		if err := s.AdmitBatch(t.Context(), "a", 90); err != nil {
			t.Fatal(err)
		}

		err := s.AdmitBatch(t.Context(), "a", 11)
		if weir.KindOf(err) != weir.Limited ||
			!strings.Contains(err.Error(), "has 10 messages left") {
			t.Errorf("got %v, want Limited with 10 messages left", err)
		}

		if err := s.AdmitBatch(t.Context(), "a", 10); err != nil {
			t.Errorf("got %v, want the last 10 messages", err)
		}
	})
}

// The quota is never exceeded, even if writes fail, or take effect although storage reports a
// failure.
func TestSet_QuotaWhileStorageFails(t *testing.T) {
	t.Parallel()
	for _, kind := range []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter} {
		synctest.Test(t, func(t *testing.T) {
			faults, n := storagetest.NewFaults(), 0
			faults.Set(func(storagetest.Call) storagetest.Fault {
				if n++; n%3 == 0 {
					return storagetest.Fault{Kind: kind}
				}
				return storagetest.Fault{}
			})

			const quota = 200
			table := faults.Table(memory.New(time.Now).Table())
			sets := []*upstream.Set{newLimited(table, upstream.Rate{}, quota),
				newLimited(table, upstream.Rate{}, quota)}
			admitted, failed := 0, 0
			for i := range 1000 {
				switch _, err := sets[i%2].Admit(t.Context(), "a", ""); {
				case err == nil:
					admitted++
				case weir.KindOf(err) == weir.Unavailable:
					failed++
				}
			}

			if admitted > quota || admitted < quota/2 || failed == 0 {
				t.Errorf("fault %d: got %d messages and %d failures, want half of %[4]d to %[4]d messages, and "+
					"some failures", kind,
					admitted, failed, quota)
			}
		})
	}
}

// The first nine writes fail as if another process had just written the row. The tenth write, the
// last that reserveTries allows, succeeds. The message must then be admitted.
func TestSet_QuotaOfTheLastTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		faults, n := storagetest.NewFaults(), 0
		faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op != "Transact" {
				return storagetest.Fault{}
			}

			if n++; n < 10 {
				return storagetest.Fault{Kind: storagetest.FailBefore,
					Err: &storage.Error{Op: "table transact", Kind: storage.Precondition,
						Index: -1}}
			}

			return storagetest.Fault{}
		})

		s := newLimited(faults.Table(memory.New(time.Now).Table()), upstream.Rate{}, 200)
		if !admitMessage(t, s) || n != 10 {
			t.Errorf("got a refusal or %d writes, want the message admitted by the tenth write", n)
		}
	})
}

func TestSet_QuotaOfACancelledCall(t *testing.T) {
	t.Parallel()
	faults := storagetest.NewFaults()
	faults.Set(func(storagetest.Call) storagetest.Fault { return storagetest.Fault{Kind: storagetest.Hang} })
	s := newLimited(faults.Table(memory.New(time.Now).Table()), upstream.Rate{}, 5)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Admit(ctx, "a", ""); weir.KindOf(err) != weir.Unavailable {
		t.Errorf("got %v, want Unavailable", err)
	}
}

func TestSet_Contracts(t *testing.T) {
	t.Parallel()
	s := newSet(t, nil, time.Now)
	for _, c := range []struct {
		upstream, contract string
		isAllowed          bool
	}{{"newsroom", "article", true}, {"newsroom", "picture", true}, {"newsroom", "product", false},
		{"forge", "product", true}, {"gone", "article", false}} {
		err := s.CheckContract(c.upstream, c.contract)
		if (err == nil) != c.isAllowed || err != nil && weir.KindOf(err) != weir.Forbidden {
			t.Errorf("upstream %s with contract %s: got the error %v, want the contract allowed: %v", c.upstream,
				c.contract, err, c.isAllowed)
		}
	}

	if _, err := s.Admit(t.Context(), "gone", ""); weir.KindOf(err) != weir.Forbidden {
		t.Errorf("an upstream that the settings do not have: got %v, want Forbidden", err)
	}
}
