package lane_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
)

func TestStore_Open(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		other := *b.eyes
		other.Lanes = 2
		if err := other.Open(t.Context()); err == nil {
			t.Error("another number of lanes was taken")
		}
		if err := b.eyes.Open(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Each start waits for Open, so Open reads only the record, however many lanes there are.
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

// A first use that fails at any of its writes leaves no record without its lanes.
func TestStore_OpenBreaksOff(t *testing.T) {
	t.Parallel()
	const lanes = 12
	for broken := range lanes + 1 {
		t.Run(fmt.Sprint("at write ", broken), func(t *testing.T) {
			t.Parallel()
			account, faults, writes := memory.New(time.Now), storagetest.NewFaults(), 0
			faults.Set(func(c storagetest.Call) storagetest.Fault {
				if c.Op != "Transact" {
					return storagetest.Fault{}
				}
				if writes++; writes > broken {
					return storagetest.Fault{Kind: storagetest.FailBefore}
				}
				return storagetest.Fault{}
			})
			s := &lane.Store{Table: faults.Table(account.Table()), Lanes: lanes, Now: time.Now}
			if err := s.Open(t.Context()); err == nil {
				t.Fatal("no error")
			}
			if _, err := s.ReadEpochRecord(t.Context()); err == nil {
				t.Error("the record is there, before its lanes")
			}
			faults.Set(nil)
			if err := s.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			for number := range lanes {
				if _, err := s.ReadControl(t.Context(), number); err != nil {
					t.Errorf("lane %d: %v", number, err)
				}
			}
		})
	}
}
