package filing_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/contract"
	"weir/internal/filing"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/upstream"
	"weir/internal/weir"
)

type ignoreLimits struct{}

// Limited implements upstream.Observer.
func (ignoreLimits) Limited(string, string) {}

// quotaBench files messages of the upstream "shop", which has a daily quota, into one lane.
type quotaBench struct {
	*testing.T
	lanes  *lanetest.Lanes
	faults *storagetest.Faults // hits the partition of the lane
	limits *upstream.Set
	filer  *filing.Filer
}

const benchQuota = 1000

func newQuotaBench(t *testing.T) *quotaBench {
	t.Helper()
	b := &quotaBench{T: t, lanes: lanetest.New(t, 1), faults: storagetest.NewFaults()}
	set, err := contract.New([]contract.Definition{{Name: "a", Root: "a", Key: contract.KeyPaths{"./@k"}}},
		contract.Limits{MaxBody: 1000})
	if err != nil {
		t.Fatal(err)
	}

	b.limits = upstream.NewSet([]upstream.Definition{{Name: "shop", DailyQuota: benchQuota}},
		b.lanes.Store.Table, time.Now, ignoreLimits{})
	b.filer = &filing.Filer{Contracts: set,
		Log: lane.NewAppender(b.lanes.FaultyStore(b.faults), lanetest.Quiet), Limits: b.limits}

	return b
}

// file makes one try to file a message, and gives up after nine seconds as the callers of a Filer
// do.
func (b *quotaBench) file(key, idempotencyKey string) error {
	ctx, cancel := context.WithTimeout(b.Context(), 9*time.Second)
	defer cancel()
	_, err := b.filer.File(ctx,
		filing.Submission{ContentType: "text/xml", Body: fmt.Appendf(nil, `<a k="%s"/>`, key),
			Options: filing.Options{Upstream: "shop", IdempotencyKey: idempotencyKey}})
	return err
}

// counted returns the number of messages that the quota has counted.
func (b *quotaBench) counted() int64 {
	b.Helper()
	if err := b.limits.ReturnReserved(b.Context()); err != nil {
		b.Fatal(err)
	}

	row, err := b.lanes.Store.Table.Get(b.Context(), "upstreams", "quota_shop")
	if storage.Is(err, storage.NotFound) {
		return 0
	}

	if err != nil {
		b.Fatal(err)
	}

	n, _ := row.Values["Reserved"].(int64)

	return n
}

func (b *quotaBench) setSealed(isSealed bool) {
	b.Helper()
	if _, err := b.lanes.Store.Table.Transact(b.Context(), "1.0",
		[]storage.Op{{Kind: storage.Merge, Key: "!head",
			Values: map[string]any{"Sealed": isSealed}}}); err != nil {
		b.Fatal(err)
	}
}

func isAppend(c storagetest.Call) bool { return c.Op == "Transact" && c.Partition == "1.0" }

// A sender repeats one message each five seconds for twenty minutes, as package rabbitmq does,
// because storage answers each try, and does not store the message. Afterwards the message is
// stored, and counts once.
func TestFiler_QuotaCountsNoTry(t *testing.T) {
	t.Parallel()
	for name, breakStorage := range map[string]func(b *quotaBench){
		"LaneIsSealed": func(b *quotaBench) { b.setSealed(true) },
		"PartitionIsThrottled": func(b *quotaBench) {
			b.faults.Set(func(c storagetest.Call) storagetest.Fault {
				if !isAppend(c) {
					return storagetest.Fault{}
				}
				return storagetest.Fault{Kind: storagetest.FailBefore,
					Err: &storage.Error{Op: "table transact", Kind: storage.Throttled, Index: -1}}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newQuotaBench(t)
				breakStorage(b)

				for began := time.Now(); time.Since(began) <
					20*time.Minute; time.Sleep(5 * time.Second) {
					if err := b.file("1", "m-1"); weir.KindOf(err) != weir.Unavailable {
						t.Fatalf("after %s: got %v, want Unavailable", time.Since(began), err)
					}
				}

				if n := b.counted(); n != 0 {
					t.Errorf("the quota counted %d messages of a sender whose message was never stored, want 0", n)
				}

				b.faults.Set(nil)
				b.setSealed(false)

				if err := b.file("1", "m-1"); err != nil || b.counted() != 1 {
					t.Errorf("got the error %v and %d counted messages, want no error and 1", err,
						b.counted())
				}
			})
		})
	}
}

// The answers to all tries are lost. The first try counts, because it may have stored the message.
// Its repeats count nothing further, whether they are answered or not.
func TestFiler_QuotaCountsALostAnswerOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newQuotaBench(t)
		b.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if isAppend(c) {
				return storagetest.Fault{Kind: storagetest.FailBefore,
					Err: &storage.Error{Op: "table transact", Kind: storage.Ambiguous, Index: -1}}
			}
			return storagetest.Fault{}
		})

		for range 30 {
			if err := b.file("1", "m-1"); weir.KindOf(err) != weir.Unavailable {
				t.Fatalf("got %v, want Unavailable", err)
			}
		}

		b.faults.Set(nil)
		if n := b.counted(); n != 1 {
			t.Errorf("after 30 lost answers to one submission: counted %d messages, want 1", n)
		}

		for range 2 {
			if err := b.file("1", "m-1"); err != nil {
				t.Fatal(err)
			}
		}

		if n := b.counted(); n != 1 {
			t.Errorf("after the repeats were answered: counted %d messages, want 1", n)
		}
	})
}

// Whatever storage does, the quota counts each stored message, and at most one more for each answer
// that was lost.
func TestFiler_QuotaCountsWhatIsStored(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) { fileAtRandom(t, seed) })
	}
}

func fileAtRandom(t *testing.T, seed uint64) {
	b := newQuotaBench(t)
	random := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex // storage draws in the goroutine of the appender
	faults := rand.New(rand.NewPCG(seed, 2))
	kinds := []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter,
		storagetest.Hang, storagetest.HangAfter}
	badness := random.IntN(100)
	b.faults.Set(func(c storagetest.Call) storagetest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if !isAppend(c) || faults.IntN(100) >= badness {
			return storagetest.Fault{}
		}

		fault := storagetest.Fault{Kind: kinds[faults.IntN(len(kinds))]}
		if fault.Kind == storagetest.FailBefore && faults.IntN(2) == 0 {
			fault.Err = &storage.Error{Op: "table transact", Kind: storage.Throttled, Index: -1}
		}

		return fault
	})

	lost := 0
	for range 40 {
		idempotencyKey := ""
		if random.IntN(4) > 0 {
			idempotencyKey = fmt.Sprint("m-", random.IntN(5))
		}

		isSealed := random.IntN(10) == 0
		b.setSealed(isSealed)

		if err := b.file(fmt.Sprint(random.IntN(3)), idempotencyKey); err != nil &&
			!lane.IsNotAppended(err) {
			lost++
		}
	}

	b.faults.Set(nil)
	b.faults.Release()
	b.faults.Wait()
	b.setSealed(false)
	synctest.Wait()
	stored := int64(len(b.lanes.Messages()))
	if n := b.counted(); n < stored || n > stored+int64(lost) {
		t.Errorf("seed %d: counted %d messages, want %d that were stored, and at most %d more for lost answers", seed,
			n, stored, lost)
	}
}
