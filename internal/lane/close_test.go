package lane_test

import (
	"errors"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func TestSeal_NothingPasses(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		a := lane.NewAppender(b.store, quiet)
		sealed := 0
		a.OnSealed = func() { sealed++ }
		later := message("b", "later")
		later.DueAt = time.Now().Add(time.Hour)
		r, err := a.Append(t.Context(), later, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := b.eyes.SealLane(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		refused := func(what string, err error) {
			t.Helper()
			var e *weir.Error
			if !errors.As(err, &e) || e.Kind != weir.Unavailable || e.RetryAfter == 0 {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err = a.Append(t.Context(), message("a", "x"), "k")
		refused("append", err)
		_, err = b.store.Cancel(t.Context(), r.Message.ID)
		refused("cancel", err)
		_, err = b.store.Reschedule(t.Context(), r.Message.ID, time.Now().Add(time.Minute), "")
		refused("move", err)
		if len(b.log()) != 1 || sealed != 1 {
			t.Errorf("%d messages, told %d times", len(b.log()), sealed)
		}
		if err := b.eyes.UnsealLane(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Append(t.Context(), message("a", "x"), "k"); err != nil {
			t.Errorf("append after unsealing: %v", err)
		}
	})
}

func TestUnseal_OutrunsALateSeal(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.faults.Once(func(c storagetest.Call) bool { return c.Op == "Transact" },
			storagetest.Fault{Kind: storagetest.LateHeld, Err: errors.New("killed")})
		if err := b.store.SealLane(t.Context(), 0); err == nil {
			t.Fatal("the seal was to be late")
		}
		if err := b.eyes.UnsealLane(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		b.faults.Release()
		b.faults.Wait()
		if c, err := b.eyes.ReadControl(t.Context(), 0); err != nil || c.Head.IsSealed {
			t.Errorf("%+v %v", c.Head, err)
		}
	})
}

func TestReopen_OutrunsALateClosing(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		if err := b.eyes.SealLane(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		closing := func(c storagetest.Call) bool {
			if !isCommit(c) {
				return false
			}
			closed, _ := c.Ops[0].Values["Closed"].(bool)
			return closed
		}
		b.faults.Once(closing, storagetest.Fault{Kind: storagetest.LateHeld, Err: errors.New("killed")})
		if _, err := b.store.CloseLane(t.Context(), 0, "one", time.Second); err == nil {
			t.Fatal("the closing was to be late")
		}
		if err := b.eyes.ReopenLane(t.Context(), 0, "two"); err != nil {
			t.Fatal(err)
		}
		b.faults.Release()
		b.faults.Wait()
		if b.tail().IsClosed {
			t.Error("closed after it was reopened")
		}
	})
}

func TestClose_Waits(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*lane.Tail)
		batch  *lane.Batch
		until  time.Duration // when it can be closed; 0 = never without a change
	}{
		"Empty":        {func(*lane.Tail) {}, nil, time.Nanosecond},
		"Held":         {func(*lane.Tail) {}, oneMore(lane.KeyBlock{ID: "b", HeldCount: 2, NextAt: t0(time.Hour)}), 0},
		"Settling":     {func(t *lane.Tail) { t.SettleUntil = t0(10 * time.Second) }, nil, 12 * time.Second},
		"Rate":         {func(t *lane.Tail) { t.NextAllowedAt = t0(10 * time.Second) }, nil, 12 * time.Second},
		"HolderDied":   {func(t *lane.Tail) { t.IsOpen = true }, nil, 9 * time.Second},
		"Log":          {func(t *lane.Tail) { t.Cursor-- }, nil, 0},
		"UngrantedYet": {func(t *lane.Tail) { t.RequestsSeen-- }, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				w, err := b.eyes.RaiseFence(t.Context(), 0, "holder", lane.Tail{}, c.change)
				if err != nil {
					t.Fatal(err)
				}
				if c.batch != nil {
					if err := w.Commit(t.Context(), c.batch); err != nil {
						t.Fatal(err)
					}
				}
				try := func() bool {
					closed, err := b.eyes.CloseLane(t.Context(), 0, "closer", 5*time.Second)
					if err != nil {
						t.Fatal(err)
					}
					return closed
				}
				if try() {
					t.Fatal("closed a lane that is not sealed")
				}
				if err := b.eyes.SealLane(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				for !try() && time.Since(began) < time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				took := time.Since(began)
				if c.until == 0 && b.tail().IsClosed ||
					c.until > 0 && (!b.tail().IsClosed || took < c.until || took > c.until+time.Second) && name != "Empty" {
					t.Errorf("closed %v after %s", b.tail().IsClosed, took)
				}
				if _, err := b.eyes.RaiseFence(t.Context(), 0, "late", lane.Tail{},
					keep); b.tail().IsClosed != errors.Is(err, lane.ErrClosed) {
					t.Errorf("take: %v", err)
				}
			})
		})
	}
}

// t0 returns the time at a distance from the beginning of virtual time.
func t0(after time.Duration) time.Time {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(after)
}

func TestChangeMeta_IsDoneOnce(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		for _, kind := range []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter,
			storagetest.LateHeld} {
			before, err := b.eyes.ReadEpochRecord(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := before.Used + 1
			b.faults.Once(func(c storagetest.Call) bool { return c.Op == "Transact" }, storagetest.Fault{Kind: kind})
			_, err = b.store.UpdateEpochRecord(t.Context(), func(m *lane.EpochRecord) error {
				if m.Used == want {
					return lane.ErrNoChange
				}
				m.Used = want
				return nil
			})
			b.faults.Release()
			b.faults.Wait()
			if m, readErr := b.eyes.ReadEpochRecord(t.Context()); err != nil || readErr != nil || m.Used != want {
				t.Errorf("%v: %v %v %+v", kind, err, readErr, m)
			}
		}
		gone := errors.New("not like this")
		if _, err := b.store.UpdateEpochRecord(t.Context(),
			func(*lane.EpochRecord) error { return gone }); !errors.Is(err, gone) {
			t.Errorf("%v", err)
		}
		other := b.eyes.ForEpoch(lane.Epoch{Number: 9, Lanes: 1})
		if _, err := other.ReadControl(t.Context(), 0); !storage.Is(err, storage.NotFound) {
			t.Errorf("an epoch that never was: %v", err)
		}
	})
}
