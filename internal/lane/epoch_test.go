package lane_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
)

func TestStore_Open(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		other := *b.faultless
		other.Lanes = 2
		if err := other.Open(t.Context()); err == nil {
			t.Error("Open with another number of lanes = no error, want one")
		}

		if err := b.faultless.Open(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// ReadControl returns NotFound for an epoch that does not exist, and creates no rows.
func TestStore_ReadControlOfNoEpoch(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		other := b.faultless.ForEpoch(epochs.Epoch{Number: 9, Lanes: 1})
		for range 2 {
			if _, err := other.ReadControl(t.Context(), 0); !storage.Is(err, storage.NotFound) {
				t.Errorf("got %v, want not found", err)
			}
		}
	})
}

// Each process calls Open when it starts, and waits for the result. So Open makes only one request
// if the lanes already exist, whatever their number.
func TestStore_OpenOfStorageInUseIsOneRequest(t *testing.T) {
	t.Parallel()
	account := memory.New(time.Now)
	const lanes = 208
	first := &lane.Store{Table: account.Table(), Lanes: lanes, Now: time.Now}
	if err := first.Open(t.Context()); err != nil {
		t.Fatal(err)
	}

	var calls []string
	faults := storagetest.NewFaults()
	faults.Set(func(c storagetest.Call) storagetest.Fault {
		calls = append(calls, c.Op)
		return storagetest.Fault{}
	})

	again := &lane.Store{Table: faults.Table(account.Table()), Lanes: lanes, Now: time.Now}
	if err := again.Open(t.Context()); err != nil || len(calls) != 1 {
		t.Errorf("requests %v, %v, want one", calls, err)
	}
}

// The first call of Open creates the lanes and the record of epochs. Whichever of these writes
// fails, the record must not exist before all lanes exist.
func TestStore_OpenBreaksOff(t *testing.T) {
	t.Parallel()
	const lanes = 12
	for succeeding := range lanes + 1 {
		t.Run(fmt.Sprint("after write ", succeeding), func(t *testing.T) {
			t.Parallel()
			account, faults, writes := memory.New(time.Now), storagetest.NewFaults(), 0
			faults.Set(func(c storagetest.Call) storagetest.Fault {
				if c.Op != "Transact" {
					return storagetest.Fault{}
				}

				if writes++; writes > succeeding {
					return storagetest.Fault{Kind: storagetest.FailBefore}
				}
				return storagetest.Fault{}
			})

			s := &lane.Store{Table: faults.Table(account.Table()), Lanes: lanes, Now: time.Now}
			if err := s.Open(t.Context()); err == nil {
				t.Fatal("Open with a failed write = no error, want one")
			}

			if _, err := epochs.Read(t.Context(), s.Table); err == nil {
				t.Error("epochs.Read found the record before its lanes, want an error")
			}

			faults.Set(nil)
			if err := s.Open(t.Context()); err != nil {
				t.Fatal(err)
			}

			for number := range lanes {
				if _, err := s.ReadControl(t.Context(), number); err != nil {
					t.Errorf("ReadControl(%d) = %v, want no error", number, err)
				}
			}
		})
	}
}
