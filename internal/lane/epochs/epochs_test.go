package epochs_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane/epochs"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
)

// Update changes the record exactly once, even if the write fails, the answer to the write is lost,
// or the write is done late.
func TestUpdate_ChangesOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter,
		storagetest.LateHeld} {
		synctest.Test(t, func(t *testing.T) {
			table, faults := memory.New(time.Now).Table(), storagetest.NewFaults()
			if err := epochs.Create(t.Context(), table, epochs.Record{Open: epochs.Epoch{Number: 1,
				Lanes: 1}}); err != nil {
				t.Fatal(err)
			}

			faults.Once(func(c storagetest.Call) bool { return c.Op == "Transact" },
				storagetest.Fault{Kind: kind})
			_, err := epochs.Update(t.Context(), faults.Table(table), func(m *epochs.Record) error {
				if m.Used == 2 {
					return epochs.ErrNoChange
				}
				m.Used++
				return nil
			})

			faults.Release()
			faults.Wait()
			got, readErr := epochs.Read(t.Context(), table)
			if err != nil || readErr != nil || got.Used != 2 {
				t.Errorf("fault %v: got %+v, %v, %v, want 2 used epochs", kind, got, err, readErr)
			}
		})
	}
}

func TestUpdate_EndsWithTheErrorOfTheChange(t *testing.T) {
	t.Parallel()
	table := memory.New(time.Now).Table()
	first := epochs.Record{Open: epochs.Epoch{Number: 1, Lanes: 4}}
	if err := epochs.Create(t.Context(), table, first); err != nil {
		t.Fatal(err)
	}

	refused := errors.New("refused")
	_, err := epochs.Update(t.Context(), table,
		func(m *epochs.Record) error { m.Open.Lanes = 8; return refused })
	if !errors.Is(err, refused) {
		t.Errorf("got %v, want the error of the change", err)
	}

	if got, err := epochs.Read(t.Context(), table); err != nil || got.Open != first.Open {
		t.Errorf("got %+v, %v, want the record unchanged", got, err)
	}
}

func TestCreate_KeepsAnExistingRecord(t *testing.T) {
	t.Parallel()
	table := memory.New(time.Now).Table()
	if _, err := epochs.Read(t.Context(), table); !storage.Is(err, storage.NotFound) {
		t.Errorf("before the first use: got %v, want NotFound", err)
	}

	for _, lanes := range []int{4, 8} {
		err := epochs.Create(t.Context(), table,
			epochs.Record{Open: epochs.Epoch{Number: 1, Lanes: lanes}})
		if err != nil {
			t.Fatal(err)
		}
	}

	if got, err := epochs.Read(t.Context(), table); err != nil || got.Open.Lanes != 4 {
		t.Errorf("got %+v, %v, want the first 4 lanes", got, err)
	}
}
