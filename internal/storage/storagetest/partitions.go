package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"weir/internal/storage"
)

// Partitions runs the suite of storage.Partitions. The function open returns a table without rows,
// and the list of its partitions.
func Partitions(t *testing.T, open func(*testing.T) (storage.Table, storage.Partitions)) {
	t.Run("ListsThoseWithRows", func(t *testing.T) {
		t.Parallel()
		table, list := open(t)
		if got := listPartitions(t, list); len(got) != 0 {
			t.Errorf("an empty table: got %q, want none", got)
		}

		// "o'clock" has the quote of a filter, and a partition can have more rows than a page.
		want := []string{"1.0", "1.10", "1.9", "10.0", "Z", "a b", "meta", "o'clock", "operators"}
		for _, name := range slices.Backward(want) {
			_, err := table.Transact(t.Context(), name,
				[]storage.Op{insertOp("k", nil), insertOp("l", nil)})
			requireNoError(t, err)
		}

		fillPartition(t, table, "1.9", 1100)
		_, err := table.Transact(t.Context(), "gone", []storage.Op{insertOp("k", nil)})
		requireNoError(t, err)
		_, err = table.Transact(t.Context(), "gone", []storage.Op{{Kind: storage.Delete, Key: "k"}})
		requireNoError(t, err)

		if got := listPartitions(t, list); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})

	t.Run("EndsWithTheErrorOfVisit", func(t *testing.T) {
		t.Parallel()
		table, list := open(t)
		for _, name := range []string{"a", "b"} {
			_, err := table.Transact(t.Context(), name, []storage.Op{insertOp("k", nil)})
			requireNoError(t, err)
		}

		calls, refused := 0, errors.New("refused")
		err := list.Partitions(t.Context(), func(string) error { calls++; return refused })
		if !errors.Is(err, refused) || calls != 1 {
			t.Errorf("got %v after %d calls, want the error of visit after 1", err, calls)
		}
	})
}

func listPartitions(t *testing.T, list storage.Partitions) (names []string) {
	t.Helper()
	requireNoError(t, list.Partitions(t.Context(), func(name string) error {
		names = append(names, name)
		return nil
	}))

	return names
}

func fillPartition(t *testing.T, table storage.Table, name string, rows int) {
	t.Helper()
	for from := 0; from < rows; from += storage.MaxOps {
		ops := make([]storage.Op, storage.MaxOps)
		for i := range ops {
			ops[i] = insertOp(fmt.Sprintf("r%06d", from+i), nil)
		}
		_, err := table.Transact(t.Context(), name, ops)
		requireNoError(t, err)
	}
}
