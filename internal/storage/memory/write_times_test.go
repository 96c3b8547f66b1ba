package memory_test

import (
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/memory"
)

// The time of a write is that of storage's clock, which is not the clock of the caller.
func TestTable_KeepsTime_OfItsOwnClock(t *testing.T) {
	t.Parallel()
	c := newClock()
	table := memory.New(c.Now).Table()
	for _, kind := range []storage.OpKind{storage.Insert, storage.Merge, storage.Replace} {
		c.Advance(90 * time.Minute)
		ops := []storage.Op{{Kind: kind, Key: "k", KeepsTime: true,
			Values: map[string]any{"n": int64(1)}}}
		if _, err := table.Transact(t.Context(), "p", ops); err != nil {
			t.Fatal(err)
		}

		want := c.Now()
		c.Advance(time.Second)
		row, err := table.Get(t.Context(), "p", "k")
		if err != nil || !row.WrittenAt.Equal(want) {
			t.Errorf("operation %d: written at %s, %v, want %s", kind, row.WrittenAt, err, want)
		}
	}
}
