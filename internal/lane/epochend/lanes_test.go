package epochend_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochend"
	"weir/internal/lane/rows"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

var quiet = slog.New(slog.DiscardHandler)

// bench is one lane on storage in memory. Calls of the store "faulty" get the faults that a test
// sets.
type bench struct {
	t      *testing.T
	faults *storagetest.Faults
	faulty *lane.Store
	store  *lane.Store // without faults
	lanes  epochend.Lanes
}

// simulate runs a test in virtual time.
func simulate(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	lanetest.Simulate(t, func(t *testing.T) {
		l, faults := lanetest.New(t, 1), storagetest.NewFaults()
		f(t, &bench{t: t, faults: faults, faulty: l.FaultyStore(faults), store: l.Store,
			lanes: epochend.Lanes{Store: l.Store}})
	})
}

func (b *bench) readControl() lane.Control {
	b.t.Helper()
	c, err := b.store.ReadControl(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func newMessage(key, body string) weir.Message {
	return weir.Message{Contract: "article", Key: key, ContentType: "application/xml",
		Body: []byte(body)}
}

func keepTail(*lane.Tail) {}

func TestSeal_NothingPasses(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		a := lane.NewAppender(b.faulty, quiet)
		sealed := 0
		a.OnSealed = func() { sealed++ }
		later := newMessage("b", "later")
		later.DueAt = time.Now().Add(time.Hour)
		r, err := a.Append(t.Context(), later, "")
		if err != nil {
			t.Fatal(err)
		}

		if err := b.lanes.Seal(t.Context(), 0); err != nil {
			t.Fatal(err)
		}

		refused := func(what string, err error) {
			t.Helper()
			var e *weir.Error
			if !errors.As(err, &e) || e.Kind != weir.Unavailable || e.RetryAfter == 0 {
				t.Errorf("%s: got %v, want an error of kind Unavailable with RetryAfter", what, err)
			}
		}

		_, err = a.Append(t.Context(), newMessage("a", "x"), "k")
		refused("append", err)
		_, err = b.faulty.Requests().Cancel(t.Context(), r.Message.ID)
		refused("cancel", err)
		_, err = b.faulty.Requests().Reschedule(t.Context(), r.Message.ID,
			time.Now().Add(time.Minute), "")
		refused("move", err)
		if n := b.readControl().Head.Next - 1; n != 1 || sealed != 1 {
			t.Errorf("got %d messages in the log, and %d calls of OnSealed, want 1, 1", n, sealed)
		}

		if err := b.lanes.Unseal(t.Context(), 0); err != nil {
			t.Fatal(err)
		}

		if _, err := a.Append(t.Context(), newMessage("a", "x"), "k"); err != nil {
			t.Errorf("Append after Unseal = %v, want no error", err)
		}
	})
}

func TestUnseal_OutrunsALateSeal(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.faults.Once(func(c storagetest.Call) bool { return c.Op == "Transact" },
			storagetest.Fault{Kind: storagetest.LateHeld, Err: errors.New("killed")})
		if err := (epochend.Lanes{Store: b.faulty}).Seal(t.Context(), 0); err == nil {
			t.Fatal("Seal = no error, want one for the late write")
		}

		if err := b.lanes.Unseal(t.Context(), 0); err != nil {
			t.Fatal(err)
		}

		b.faults.Release()
		b.faults.Wait()
		if c, err := b.store.ReadControl(t.Context(), 0); err != nil || c.Head.IsSealed {
			t.Errorf("got %+v %v, want IsSealed false and no error", c.Head, err)
		}
	})
}

func TestReopen_OutrunsALateClosing(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		if err := b.lanes.Seal(t.Context(), 0); err != nil {
			t.Fatal(err)
		}

		closing := func(c storagetest.Call) bool {
			if c.Op != "Transact" || c.Ops[0].Key != rows.TailKey {
				return false
			}
			closed, _ := c.Ops[0].Values[rows.IsClosed.Name()].(bool)
			return closed
		}

		b.faults.Once(closing,
			storagetest.Fault{Kind: storagetest.LateHeld, Err: errors.New("killed")})
		if _, err := (epochend.Lanes{Store: b.faulty}).Close(t.Context(), 0, "one", time.Second); err == nil {
			t.Fatal("Close = no error, want one for the late write")
		}

		if err := b.lanes.Reopen(t.Context(), 0, "two"); err != nil {
			t.Fatal(err)
		}

		b.faults.Release()
		b.faults.Wait()
		if b.readControl().Tail.IsClosed {
			t.Error("the lane is closed after Reopen, want it open")
		}
	})
}

// blockedKey returns a tx that stores a blocked key with two held messages.
func blockedKey() *lane.Transaction {
	ch := &lane.Change{}
	ch.UpdateTail(func(t *lane.Tail) { t.Counts.Delivered++ })
	ch.SaveBlock(lane.KeyBlock{ID: "b", HeldCount: 2, NextAt: timeAfter(time.Hour)})
	tx := &lane.Transaction{}
	tx.TryAdd(ch)
	return tx
}

func TestClose_Waits(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*lane.Tail)
		tx     *lane.Transaction
		until  time.Duration // time after which the lane can be closed; 0 = never
	}{
		"Empty": {func(*lane.Tail) {}, nil, time.Nanosecond},
		"Held":  {func(*lane.Tail) {}, blockedKey(), 0},
		"Settling": {func(t *lane.Tail) { t.SettleUntil = timeAfter(10 * time.Second) }, nil,
			12 * time.Second},
		"HolderDied":   {func(t *lane.Tail) { t.IsOpen = true }, nil, 9 * time.Second},
		"Log":          {func(t *lane.Tail) { t.Cursor-- }, nil, 0},
		"UngrantedYet": {func(t *lane.Tail) { t.RequestsSeen-- }, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				w, err := b.store.RaiseFence(t.Context(), 0, "holder", lane.Tail{}, c.change)
				if err != nil {
					t.Fatal(err)
				}

				if c.tx != nil {
					if err := w.Commit(t.Context(), c.tx); err != nil {
						t.Fatal(err)
					}
				}

				try := func() bool {
					closed, err := b.lanes.Close(t.Context(), 0, "closer", 5*time.Second)
					if err != nil {
						t.Fatal(err)
					}
					return closed
				}
				if try() {
					t.Fatal("Close closed a lane that is not sealed, want it left open")
				}

				if err := b.lanes.Seal(t.Context(), 0); err != nil {
					t.Fatal(err)
				}

				began := time.Now()
				for !try() && time.Since(began) < time.Minute {
					time.Sleep(100 * time.Millisecond)
				}

				took := time.Since(began)
				isClosed := b.readControl().Tail.IsClosed
				if c.until == 0 && isClosed ||
					c.until > 0 && (!isClosed || took < c.until || took > c.until+time.Second) &&
						name != "Empty" {
					t.Errorf("got closed %v after %s, want after %s (0 = never)", isClosed,
						took, c.until)
				}

				if _, err := b.store.RaiseFence(t.Context(), 0, "late", lane.Tail{},
					keepTail); isClosed != errors.Is(err, lane.ErrClosed) {
					t.Errorf("take: got %v, want ErrClosed: %v", err, isClosed)
				}
			})
		})
	}
}

// timeAfter returns the beginning of virtual time plus a duration.
func timeAfter(after time.Duration) time.Time {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(after)
}
