package lane_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// bench is a test bench: one lane on storage in memory, with faults that the test sets.
type bench struct {
	t         *testing.T
	account   *memory.Account
	faults    *storagetest.Faults
	store     *lane.Store // with faults
	faultless *lane.Store // without faults
}

// simulate runs a test in virtual time.
func simulate(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	lanetest.Simulate(t, func(t *testing.T) {
		l, faults := lanetest.New(t, 1), storagetest.NewFaults()
		f(t, &bench{t: t, account: l.Account, faults: faults, store: l.FaultyStore(faults),
			faultless: l.Store})
	})
}

func newMessage(key, body string) weir.Message {
	return weir.Message{Contract: "article", Key: key, ContentType: "application/xml",
		Body: []byte(body)}
}

// readWholeLog reads the log, which must have at most 1000 messages. It checks that head counts the
// same number of messages.
func (b *bench) readWholeLog() []*lane.Entry {
	b.t.Helper()
	entries, err := b.faultless.ReadLog(b.t.Context(), 0, 1, 1000)
	if err != nil {
		b.t.Fatal(err)
	}

	c, err := b.faultless.ReadControl(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}

	if int64(len(entries)) != c.Head.Next-1 {
		b.t.Errorf("got %d messages in the log, want the %d of head", len(entries), c.Head.Next-1)
	}

	return entries
}

// isAppend reports whether a call is the transaction of an append.
func isAppend(c storagetest.Call) bool {
	return c.Op == "Transact" && len(c.Ops) > 1 && c.Ops[0].Key == "!head"
}

func TestAppender_Append_TheAnswerOfStorageIsLost(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.faults.Once(isAppend, storagetest.Fault{Kind: storagetest.FailAfter})
		r, err := lane.NewAppender(b.store, quiet).Append(t.Context(), newMessage("a", "x"), "k")
		if err != nil || r.Duplicate || r.Message.ID.Seq != 1 || len(b.readWholeLog()) != 1 {
			t.Errorf("%+v %v, %d in the log, want Duplicate false, Seq 1, 1 in the log and no error", r, err,
				len(b.readWholeLog()))
		}
	})
}

func TestAppender_Append_TheTransactionArrivesAfterItWasSentAgain(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.faults.Once(isAppend, storagetest.Fault{Kind: storagetest.Late, Delay: time.Second})
		r, err := lane.NewAppender(b.store, quiet).Append(t.Context(), newMessage("a", "x"), "")
		b.faults.Wait()

		if err != nil || r.Message.ID.Seq != 1 || len(b.readWholeLog()) != 1 {
			t.Errorf("%+v %v, %d in the log, want Seq 1, 1 in the log and no error", r, err,
				len(b.readWholeLog()))
		}
	})
}

func TestAppender_Append_TheTransactionArrivesBeforeItIsSentAgain(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.faults.Once(isAppend, storagetest.Fault{Kind: storagetest.Late, Delay: time.Millisecond})
		r, err := lane.NewAppender(b.store, quiet).Append(t.Context(), newMessage("a", "x"), "k")
		b.faults.Wait()

		if err != nil || r.Duplicate || len(b.readWholeLog()) != 1 {
			t.Errorf("%+v %v, %d in the log, want Duplicate false, 1 in the log and no error", r,
				err, len(b.readWholeLog()))
		}
	})
}

func TestAppender_Append_AnotherReceiverWritesBeforeTheTransactionArrives(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		other := lane.NewAppender(b.faultless, quiet)
		b.faults.Once(isAppend,
			storagetest.Fault{Kind: storagetest.Late, Delay: 50 * time.Millisecond})
		done := make(chan lane.Receipt)
		go func() {
			r, err := lane.NewAppender(b.store, quiet).Append(t.Context(),
				newMessage("a", "mine"), "")
			if err != nil {
				t.Error(err)
			}
			done <- r
		}()

		time.Sleep(20 * time.Millisecond)
		if _, err := other.Append(t.Context(), newMessage("a", "other"), ""); err != nil {
			t.Error(err)
		}

		r := <-done
		b.faults.Wait()
		if r.Message.ID.Seq != 2 || len(b.readWholeLog()) != 2 {
			t.Errorf("%+v, %d in the log, want Seq 2 and 2 in the log", r, len(b.readWholeLog()))
		}
	})
}

func TestAppender_Append_ManyReceiversOnOneHead(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		var mu sync.Mutex
		var seqs []int64
		var wg sync.WaitGroup
		for range 4 {
			a := lane.NewAppender(b.store, quiet)
			for i := range 50 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					r, err := a.Append(t.Context(), newMessage(fmt.Sprint(i), "x"), "")
					if err != nil {
						t.Error(err)
					}

					mu.Lock()
					defer mu.Unlock()
					seqs = append(seqs, r.Message.ID.Seq)
				})
			}
		}

		wg.Wait()
		slices.Sort(seqs)

		if len(slices.Compact(seqs)) != 200 || len(b.readWholeLog()) != 200 {
			t.Errorf("%d different numbers, %d in the log, want 200 and 200 in the log",
				len(slices.Compact(seqs)), len(b.readWholeLog()))
		}
	})
}

func TestAppender_Append_MessagesGatherWhileATransactionIsInFlight(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		transactions := 0
		hold := make(chan struct{})
		slow := &slowTable{Table: b.store.Table, hold: hold, count: &transactions}
		b.store.Table = slow
		a := lane.NewAppender(b.store, quiet)
		var wg sync.WaitGroup
		for i := range 51 {
			wg.Go(func() {
				if _, err := a.Append(t.Context(), newMessage("a", fmt.Sprint(i)), ""); err != nil {
					t.Error(err)
				}
			})

			if i == 0 {
				synctest.Wait()
			}
		}

		synctest.Wait()
		close(hold)
		wg.Wait()

		if transactions != 2 || len(b.readWholeLog()) != 51 {
			t.Errorf("%d transactions for %d messages, want 2 and 51 in the log", transactions,
				len(b.readWholeLog()))
		}
	})
}

func TestAppender_Append_StorageAwayIsUnavailableWithin11s(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		for _, kind := range []storagetest.FaultKind{storagetest.FailBefore, storagetest.Hang} {
			b.faults.Set(func(storagetest.Call) storagetest.Fault { return storagetest.Fault{Kind: kind} })
			began := time.Now()
			_, err := lane.NewAppender(b.store, quiet).Append(t.Context(), newMessage("a", "x"), "")
			if weir.KindOf(err) != weir.Unavailable || time.Since(began) > 11*time.Second {
				t.Errorf("%v after %s, want an error of kind Unavailable and at most 11s", err,
					time.Since(began))
			}
		}
	})
}

// If the context of Append ends while the transaction hangs, Append returns an Unavailable error.
func TestAppender_Append_TheCallerLeaves(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.faults.Once(isAppend, storagetest.Fault{Kind: storagetest.Hang})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		if _, err := lane.NewAppender(b.store, quiet).Append(ctx, newMessage("a", "x"),
			""); weir.KindOf(err) != weir.Unavailable {
			t.Errorf("got %v, want an error of kind Unavailable", err)
		}

		time.Sleep(time.Minute)
	})
}

// slowTable blocks the first transaction until hold is closed. It counts the transactions.
type slowTable struct {
	storage.Table
	hold  chan struct{}
	count *int
	once  sync.Once
}

func (s *slowTable) Transact(ctx context.Context, p string,
	ops []storage.Op) ([]storage.ETag, error) {
	s.once.Do(func() { <-s.hold })
	*s.count++
	return s.Table.Transact(ctx, p, ops)
}

func TestAppender_Idempotency(t *testing.T) {
	t.Run("RepeatsAtTheSameTime", func(t *testing.T) {
		simulate(t, func(t *testing.T, b *bench) {
			a := lane.NewAppender(b.store, quiet)
			var wg sync.WaitGroup
			var mu sync.Mutex
			fresh, ids := 0, map[string]bool{}
			for range 20 {
				wg.Go(func() {
					r, err := a.Append(t.Context(), newMessage("a", "x"), "k")
					if err != nil {
						t.Error(err)
						return
					}

					mu.Lock()
					defer mu.Unlock()
					ids[r.Message.ID.String()] = true
					if !r.Duplicate {
						fresh++
					}
				})
			}

			wg.Wait()

			if fresh != 1 || len(ids) != 1 || len(b.readWholeLog()) != 1 {
				t.Errorf("%d fresh, %d ids, %d in the log, want 1, 1 id and 1 in the log",
					fresh, len(ids), len(b.readWholeLog()))
			}
		})
	})

	t.Run("ALaterRepeatAndTheScopeOfTheKey", func(t *testing.T) {
		simulate(t, func(t *testing.T, b *bench) {
			a := lane.NewAppender(b.store, quiet)
			first, err := a.Append(t.Context(), newMessage("a", "x"), "k")
			if err != nil {
				t.Fatal(err)
			}

			for _, c := range []struct {
				m         weir.Message
				duplicate bool
				kind      weir.Kind
			}{{newMessage("a", "x"), true, 0}, {newMessage("a", "y"), false, weir.Invalid},
				{newMessage("b", "x"), false, 0}} {
				r, err := lane.NewAppender(b.store, quiet).Append(t.Context(), c.m, "k")
				if (err != nil) != (c.kind != 0) || (err != nil && weir.KindOf(err) != c.kind) ||
					r.Duplicate != c.duplicate {
					t.Errorf("got %+v, %v, want %+v", r, err, c)
				}

				if c.duplicate && r.Message.ID != first.Message.ID {
					t.Errorf("a duplicate has the id %v, want %v", r.Message.ID, first.Message.ID)
				}
			}

			if len(b.readWholeLog()) != 2 {
				t.Errorf("%d in the log, want 2", len(b.readWholeLog()))
			}
		})
	})

	t.Run("RepeatsAndNewMessagesAtTheSameTime", func(t *testing.T) {
		simulate(t, func(t *testing.T, b *bench) {
			a := lane.NewAppender(b.store, quiet)
			for i := range 120 {
				if _, err := a.Append(t.Context(), newMessage("a", fmt.Sprint(i)), fmt.Sprint("k", i)); err != nil {
					t.Fatal(err)
				}
			}

			var wg sync.WaitGroup
			var mu sync.Mutex
			duplicates := 0
			for i := range 240 {
				wg.Go(func() {
					r, err := a.Append(t.Context(), newMessage("a", fmt.Sprint(i)),
						fmt.Sprint("k", i))
					if err != nil {
						t.Error(err)
					}

					mu.Lock()
					defer mu.Unlock()
					if r.Duplicate {
						duplicates++
					}
				})
			}

			wg.Wait()

			if duplicates != 120 || len(b.readWholeLog()) != 240 {
				t.Errorf("%d duplicates, %d in the log, want 120 and 240 in the log", duplicates,
					len(b.readWholeLog()))
			}
		})
	})
}

func TestAppender_Bodies(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		a := lane.NewAppender(b.store, quiet)
		random := make([]byte, 200<<10)
		source := rand.NewChaCha8([32]byte{1})
		source.Read(random)
		var wg sync.WaitGroup
		bodies := [][]byte{[]byte("<a/>"), []byte(strings.Repeat("<a/>", 50_000)), random}
		for range 80 { // together 4.6 MiB, more than the 4 MiB of one transaction
			body := make([]byte, 59<<10)
			source.Read(body)
			bodies = append(bodies, body)
		}

		for i, body := range bodies {
			wg.Go(func() {
				r, err := a.Append(t.Context(), newMessage(fmt.Sprint(i), string(body)), "")
				if err != nil {
					t.Error(err)
					return
				}

				e, err := b.faultless.ReadMessage(t.Context(), 0, r.Message.ID.Seq)
				if err == nil {
					err = b.faultless.LoadBody(t.Context(), e)
				}

				if err != nil || !bytes.Equal(e.Message.Body, body) || e.Message.Size != len(body) {
					t.Errorf("body %d: %d bytes came back as %d, %v, want Body %q, Size %v and no error", i,
						len(body), len(e.Message.Body), err, body, len(body))
				}
			})
		}

		wg.Wait()
		page, err := b.account.Blobs().List(t.Context(), "", "")
		if err != nil || len(page.Infos) != 1 || !page.Infos[0].Marked {
			t.Errorf("blobs %+v %v, want 1 Info, Marked true and no error", page, err)
		}
	})
}
