package lane_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// isCommit reports whether a call is a transaction that writes tail.
func isCommit(c storagetest.Call) bool {
	return c.Op == "Transact" && len(c.Ops) > 0 && c.Ops[0].Key == "!tail"
}

func keepTail(*lane.Tail) {}

// newCountTransaction returns a tx that adds 1 to the number of delivered messages, and saves
// blocks.
func newCountTransaction(blocks ...lane.KeyBlock) *lane.Transaction {
	ch := &lane.Change{}
	ch.UpdateTail(func(t *lane.Tail) { t.Counts.Delivered++ })
	for _, b := range blocks {
		ch.SaveBlock(b)
	}

	tx := &lane.Transaction{}
	tx.TryAdd(ch)

	return tx
}

func (b *bench) readTail() lane.Tail {
	b.t.Helper()
	c, err := b.faultless.ReadControl(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return c.Tail
}

func TestWriter(t *testing.T) {
	for name, kind := range map[string]storagetest.FaultKind{"Unanswered": storagetest.FailAfter,
		"NotDone": storagetest.FailBefore, "Late": storagetest.Late} {
		t.Run("ACommit"+name+"CountsOnce", func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				w, err := b.store.RaiseFence(t.Context(), 0, "one", lane.Tail{}, keepTail)
				if err != nil {
					t.Fatal(err)
				}

				for range 5 {
					b.faults.Once(isCommit,
						storagetest.Fault{Kind: kind, Delay: 50 * time.Millisecond})
					if err := w.Commit(t.Context(), newCountTransaction()); err != nil {
						t.Fatal(err)
					}
				}

				b.faults.Wait()

				if tail := b.readTail(); tail.Counts.Delivered != 5 || tail.CommitSeq != 5 ||
					tail.ETag != w.Tail().ETag {
					t.Errorf("tail %+v, writer %+v, want 5 delivered by commit 5, and one ETag",
						tail, w.Tail())
				}
			})
		})

		t.Run("AFence"+name+"IsRaisedOnce", func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				b.faults.Once(isCommit, storagetest.Fault{Kind: kind, Delay: 50 * time.Millisecond})
				w, err := b.store.RaiseFence(t.Context(), 0, "one", lane.Tail{}, keepTail)
				b.faults.Wait()

				if tail := b.readTail(); err != nil || tail.Fence != 1 ||
					tail.ETag != w.Tail().ETag {
					t.Errorf("got %v, tail %+v, want fence 1 and the writer's ETag", err, tail)
				}
			})
		})
	}
}

func TestWriter_AFormerHolderCannotCommitAfterTheFenceRose(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		former, err := b.store.RaiseFence(t.Context(), 0, "one", lane.Tail{}, keepTail)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := b.store.RaiseFence(t.Context(), 0, "two", lane.Tail{}, keepTail); err != nil {
			t.Fatal(err)
		}

		err = former.Commit(t.Context(),
			newCountTransaction(lane.KeyBlock{ID: "test", NextAt: time.Now()}))
		if tail := b.readTail(); !errors.Is(err, lane.ErrFenced) || tail.Fence != 2 ||
			tail.Nonce != "two" ||
			tail.Counts.Delivered != 0 {
			t.Errorf("%v, tail %+v, want %v, Fence 2, Nonce two and Delivered 0", err, tail,
				lane.ErrFenced)
		}

		if _, err := b.account.Table().Get(t.Context(), "1.0", "b_test"); !storage.Is(err,
			storage.NotFound) {
			t.Errorf("the former holder wrote a row: %v, want an error of kind NotFound", err)
		}
	})
}

func TestWriter_ALateCopyOfARefusedCommitIsNotTakenForTheNext(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		w, err := b.store.RaiseFence(t.Context(), 0, "one", lane.Tail{}, keepTail)
		if err != nil {
			t.Fatal(err)
		}

		ch := &lane.Change{}
		ch.RemoveBlock("test") // a row that does not exist
		tx := &lane.Transaction{}
		tx.TryAdd(ch)
		b.faults.Once(isCommit, storagetest.Fault{Kind: storagetest.LateHeld})
		if err := w.Commit(t.Context(), tx); !storage.Is(err, storage.NotFound) {
			t.Fatalf("got %v, want an error of kind NotFound", err)
		}

		row := storage.Op{Kind: storage.Insert, Key: "b_test", Values: map[string]any{}}
		if _, err := b.account.Table().Transact(t.Context(), "1.0", []storage.Op{row}); err != nil {
			t.Fatal(err)
		}

		b.faults.Release()
		b.faults.Wait()

		if err := w.Commit(t.Context(), newCountTransaction()); !errors.Is(err, lane.ErrFenced) ||
			b.readTail().Counts.Delivered != 0 {
			t.Errorf("the next commit was taken for done: %v, tail %+v, want %v and Delivered 0",
				err, b.readTail(), lane.ErrFenced)
		}
	})
}

func TestWriter_AFormerHoldersCommitArrivesLate(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		former, err := b.store.RaiseFence(t.Context(), 0, "one", lane.Tail{}, keepTail)
		if err != nil {
			t.Fatal(err)
		}

		b.faults.Once(isCommit, storagetest.Fault{Kind: storagetest.LateHeld})
		done := make(chan error)
		go func() { done <- former.Commit(t.Context(), newCountTransaction()) }()
		<-done // a second copy of the commit was done; the first copy has not arrived yet

		if _, err := b.faultless.RaiseFence(t.Context(), 0, "two", lane.Tail{}, keepTail); err !=
			nil {
			t.Fatal(err)
		}

		b.faults.Release()
		b.faults.Wait()
		if tail := b.readTail(); tail.Nonce != "two" || tail.Counts.Delivered != 1 {
			t.Errorf("tail %+v, want Nonce two and Delivered 1", tail)
		}
	})
}

func TestWriter_RaiseFenceWhileAFormerHolderCommits(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		former, err := b.faultless.RaiseFence(t.Context(), 0, "one", lane.Tail{}, keepTail)
		if err != nil {
			t.Fatal(err)
		}

		once := sync.Once{}
		b.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if isCommit(c) {
				once.Do(func() {
					if err := former.Commit(t.Context(), newCountTransaction()); err != nil {
						t.Error(err)
					}
				})
			}

			return storagetest.Fault{}
		})

		if _, err := b.store.RaiseFence(t.Context(), 0, "two", lane.Tail{}, keepTail); err != nil {
			t.Fatal(err)
		}

		if tail := b.readTail(); tail.Nonce != "two" || tail.Counts.Delivered != 1 ||
			tail.Fence != 2 {
			t.Errorf("tail %+v, want Nonce two, Delivered 1 and Fence 2", tail)
		}
	})
}

func TestBatch_FillsOneTransaction(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		a := lane.NewAppender(b.store, quiet)
		w, err := b.store.RaiseFence(t.Context(), 0, "one", lane.Tail{}, keepTail)
		if err != nil {
			t.Fatal(err)
		}

		tx, taken := &lane.Transaction{}, 0
		for i := range 200 {
			r, err := a.Append(t.Context(), newMessage("a", "x"), "")
			if err != nil {
				t.Fatal(err)
			}

			ch := &lane.Change{}

			// adds two operations, each for a row of this message
			ch.Hold("block", &lane.Entry{Message: r.Message})

			// All changes of the tx save the same block, so its row takes only one operation of the
			// transaction.
			ch.SaveBlock(lane.KeyBlock{ID: "block", KeyHash: "k", HeldCount: int64(i),
				NextAt: time.Now()})
			if !tx.TryAdd(ch) {
				break
			}

			taken++
		}

		if err := w.Commit(t.Context(), tx); err != nil || taken != 49 {
			t.Errorf("%d changes, %v, want 49 and no error", taken, err)
		}

		blocks, err := b.store.DeliveryState().ReadBlocks(t.Context(), 0)
		if err != nil || len(blocks) != 1 || blocks[0].HeldCount != 48 {
			t.Errorf("ReadBlocks = %+v, %v, want one block with a HeldCount of 48, the last state",
				blocks, err)
		}
	})
}

func TestEntry_RecordKeepsFirstAndLast(t *testing.T) {
	t.Parallel()
	e := &lane.Entry{}
	for range 50 {
		e.Record(weir.Result{Outcome: weir.OutcomeRetry}, 1, true)
	}

	var numbers []int
	for _, a := range e.Attempts {
		numbers = append(numbers, a.Number)
	}

	if fmt.Sprint(numbers) != "[1 2 3 4 5 6 7 8 9 10 41 42 43 44 45 46 47 48 49 50]" ||
		e.AttemptCount != 50 {
		t.Errorf("got %v, want numbers [1 2 3 4 5 6 7 8 9 10 41 42 43 44 45 46 47 48 49 50] and AttemptCount 50",
			numbers)
	}
}
