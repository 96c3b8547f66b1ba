package lane_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochend"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// newDrafts returns n drafts of a key, with the bodies 0 to n-1, and an idempotency key for each.
func newDrafts(key string, n int) (drafts []lane.Draft) {
	for i := range n {
		drafts = append(drafts, lane.Draft{Message: newMessage(key, fmt.Sprint(i)),
			IdempotencyKey: fmt.Sprint("part ", i)})
	}
	return drafts
}

// bodiesInLog returns the bodies of the log, in order.
func (b *bench) bodiesInLog() (bodies []string) {
	b.t.Helper()
	for _, e := range b.readWholeLog() {
		if err := b.faultless.LoadBody(b.t.Context(), e); err != nil {
			b.t.Fatal(err)
		}
		bodies = append(bodies, string(e.Message.Body))
	}

	return bodies
}

// wantPrefix checks that the log has the messages 0 to n-1, in order and each once.
func (b *bench) wantPrefix(n int) {
	b.t.Helper()
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i))
	}

	if got := b.bodiesInLog(); !slices.Equal(got, want) {
		b.t.Errorf("the log has %d messages %.200v, want %d in order", len(got), got, n)
	}
}

// wantSomePrefix checks that the log has the messages 0 to n-1, for some n, in order and each once.
func (b *bench) wantSomePrefix() {
	b.t.Helper()
	entries, err := b.faultless.ReadLog(b.t.Context(), 0, 1, 1000)
	if err != nil {
		b.t.Fatal(err)
	}

	for i, e := range entries {
		if err := b.faultless.LoadBody(b.t.Context(), e); err != nil {
			b.t.Fatal(err)
		}
		if string(e.Message.Body) != fmt.Sprint(i) {
			b.t.Fatalf("message %d of the log has the body %s, want %d", i+1, e.Message.Body, i)
		}
	}
}

// countAppends counts the transactions of appends from now on.
func (b *bench) countAppends() *int {
	n := new(int)
	b.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if isAppend(c) {
			*n++
		}
		return storagetest.Fault{}
	})

	return n
}

func TestAppender_AppendInOrder_TakesFewTransactions(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		sent := b.countAppends()
		receipts, errs := lane.NewAppender(b.store, quiet).AppendInOrder(t.Context(),
			newDrafts("a", 100))
		for i := range errs {
			if errs[i] != nil || receipts[i].Duplicate || receipts[i].Message.ID.Seq != int64(i+1) {
				t.Errorf("message %d: got %+v, %v, want a new message with the number %d", i,
					receipts[i], errs[i], i+1)
			}
		}

		if b.wantPrefix(100); *sent != 3 {
			t.Errorf("got %d transactions, want 3, because 49 messages fit into one", *sent)
		}
	})
}

func TestAppender_AppendInOrder_KnowsRepeats(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		a, drafts := lane.NewAppender(b.store, quiet), newDrafts("a", 30)
		first, _ := a.AppendInOrder(t.Context(), drafts[:20])
		again, errs := lane.NewAppender(b.store, quiet).AppendInOrder(t.Context(), drafts)
		for i := range drafts {
			if isKnown := i < 20; errs[i] != nil || again[i].Duplicate != isKnown ||
				isKnown && again[i].Message.ID != first[i].Message.ID {
				t.Errorf("message %d: got %+v, %v, want a duplicate if it is below 20", i,
					again[i], errs[i])
			}
		}

		b.wantPrefix(30)
	})
}

// If a message cannot be appended, no later message of its lane is. A repeated call appends the
// rest.
func TestAppender_AppendInOrder_StopsAtAFailure(t *testing.T) {
	permanent := storagetest.Fault{Kind: storagetest.FailBefore,
		Err: &storage.Error{Op: "test", Kind: storage.Other, Index: -1}}
	nthAppend := func(n int) func(storagetest.Call) bool {
		return func(c storagetest.Call) bool {
			if isAppend(c) {
				n--
			}
			return isAppend(c) && n == 0
		}
	}

	nthBody := func(c storagetest.Call) bool { return c.Op == "Put" }
	for name, c := range map[string]struct {
		fails func(storagetest.Call) bool
		large int // a message with a body in a blob; -1 = none
		want  int // messages in the log after the first call
	}{
		"FirstTransaction":  {nthAppend(1), -1, 0},
		"SecondTransaction": {nthAppend(2), -1, 49},
		"StoredBody":        {nthBody, 20, 20},
		"LastStoredBody":    {nthBody, 99, 99},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				a, drafts := lane.NewAppender(b.store, quiet), newDrafts("a", 100)
				if c.large >= 0 {
					noise := make([]byte, 80<<10)
					for i := range noise {
						noise[i] = byte(rand.IntN(256))
					}
					drafts[c.large].Message.Body = noise
				}

				b.faults.Once(c.fails, permanent)
				_, errs := a.AppendInOrder(t.Context(), drafts)
				if b.wantPrefix(c.want); errs[c.want] == nil {
					t.Errorf("message %d: got no error, want one", c.want)
				}

				for i := c.want + 49; i < 100; i++ {
					if !lane.IsNotAppended(errs[i]) || weir.KindOf(errs[i]) != weir.Unavailable {
						t.Errorf("message %d: got %v, want Unavailable, and not appended",
							i, errs[i])
					}
				}

				_, errs = a.AppendInOrder(t.Context(), drafts)
				if got := len(b.readWholeLog()); got != 100 || slices.ContainsFunc(errs, isError) {
					t.Errorf("repeated: got %d messages, %v; want 100 and no error", got, errs)
				}
			})
		})
	}
}

func isError(err error) bool { return err != nil }

// A message whose idempotency key belongs to another body is left out, and the others are appended.
func TestAppender_AppendInOrder_LeavesOutARefusedMessage(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		a := lane.NewAppender(b.store, quiet)
		if _, err := a.Append(t.Context(), newMessage("a", "other"), "part 1"); err != nil {
			t.Fatal(err)
		}

		_, errs := a.AppendInOrder(t.Context(), newDrafts("a", 60))
		for i, err := range errs {
			if isRefused := weir.KindOf(err) == weir.Invalid; isRefused != (i == 1) ||
				err != nil && i != 1 {
				t.Errorf("message %d: got %v, want only message 1 refused", i, err)
			}
		}

		got := b.bodiesInLog()
		if want := append([]string{"other"}, withoutOne(60)...); !slices.Equal(got, want) {
			t.Errorf("the log has %v, want %v", got, want)
		}
	})
}

// withoutOne returns 0 to n-1 without 1.
func withoutOne(n int) (bodies []string) {
	for i := range n {
		if i != 1 {
			bodies = append(bodies, fmt.Sprint(i))
		}
	}
	return bodies
}

func TestAppender_AppendInOrder_SealedLane(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		a, isSealed := lane.NewAppender(b.store, quiet), false
		a.OnFiled = func(int, []weir.Message) {
			if !isSealed {
				isSealed = true
				if err := (epochend.Lanes{Store: b.faultless}).Seal(t.Context(), 0); err != nil {
					t.Error(err)
				}
			}
		}

		_, errs := a.AppendInOrder(t.Context(), newDrafts("a", 60))
		if b.wantPrefix(49); errs[48] != nil || !lane.IsNotAppended(errs[49]) ||
			!lane.IsNotAppended(errs[59]) {
			t.Errorf("got %v, want only the first 49 appended", errs)
		}
	})
}

// Posts that wait already are appended before a series, and a post behind it waits for one
// transaction more at most.
func TestAppender_AppendInOrder_HoldsUpNoPost(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.store.Table = uneven{b.store.Table, time.Second, time.Second, func() float64 { return 0 }}
		a := lane.NewAppender(b.store, quiet)
		var calls sync.WaitGroup
		calls.Go(func() {
			if _, errs := a.AppendInOrder(t.Context(), newDrafts("a", 400)); slices.ContainsFunc(
				errs, isError) {
				t.Errorf("series: %v", errs)
			}
		})

		for i := range 20 {
			time.Sleep(400 * time.Millisecond)
			calls.Go(func() {
				began := time.Now()
				_, err := a.Append(t.Context(), newMessage("b", "x"), fmt.Sprint("post ", i))
				if took := time.Since(began); err != nil || took > 4*time.Second {
					t.Errorf("post %d: took %s, %v; want at most three transactions and a break",
						i, took, err)
				}
			})
		}

		calls.Wait()
		if got := len(b.readWholeLog()); got != 420 {
			t.Errorf("got %d messages, want 420", got)
		}
	})
}

// The memory of refused drafts is free again.
func TestAppender_AppendInOrder_FreesMemory(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		a := lane.NewAppender(b.store, quiet)
		drafts := newDrafts("a", 70)
		for i := range drafts {
			drafts[i].Message.Body = make([]byte, 1<<20)
		}

		if _, errs := a.AppendInOrder(t.Context(), drafts); !slices.ContainsFunc(errs, isError) {
			t.Error("got no error, want some, because 64 MiB may be in use")
		}

		if _, err := a.Append(t.Context(), newMessage("b", string(make([]byte, 60<<20))), ""); err != nil {
			t.Errorf("a large post afterwards: got %v, want no error", err)
		}
	})
}

// Storage fails in many ways, and other processes append to the same lane and repeat the same call.
// At each moment the log has a prefix of the messages. In the end storage is healthy, and the log
// has all messages, each once.
func TestAppender_AppendInOrder_AtRandom(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) { appendAtRandom(t, b, seed) })
		})
	}
}

func appendAtRandom(t *testing.T, b *bench, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return dice.IntN(n)
	}

	kinds := []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter,
		storagetest.Late}
	b.faults.Set(func(c storagetest.Call) storagetest.Fault {
		chance := 1 // of the reads, of which a call makes two for each message that is known
		if c.Op == "Transact" {
			chance = 20
		}

		if draw(100) >= chance {
			return storagetest.Fault{}
		}

		return storagetest.Fault{Kind: kinds[draw(3)],
			Delay: time.Duration(draw(3000)) * time.Millisecond}
	})

	drafts := newDrafts("a", 30+draw(120))
	for i := range drafts {
		if draw(4) == 0 {
			drafts[i].Message.DueAt = time.Now().Add(time.Hour)
		}
	}

	var calls sync.WaitGroup
	for range 1 + draw(3) {
		a := lane.NewAppender(b.store, quiet)
		pause := time.Duration(draw(5000)) * time.Millisecond
		patience := time.Duration(1+draw(9000)) * time.Millisecond
		calls.Go(func() {
			time.Sleep(pause)
			for call := range 200 {
				if call == 150 {
					b.faults.Set(nil)
				}

				ctx, cancel := context.WithTimeout(t.Context(), patience)
				_, errs := a.AppendInOrder(ctx, drafts)
				if cancel(); !slices.ContainsFunc(errs, isError) {
					return
				}

				b.wantSomePrefix()
				time.Sleep(time.Second)
			}

			t.Error("got no success in 200 calls, want one")
		})
	}

	calls.Wait()
	b.faults.Wait()
	b.wantPrefix(len(drafts))
}
