package storagetest

import (
	"strconv"
	"testing"
	"time"

	"weir/internal/storage"
)

// transactKeepsTime checks Row.WrittenAt: storage sets it at each write that asks for it, it does
// not go back, a read does not change it, and it is no value of the row.
func transactKeepsTime(t *testing.T, table storage.Table) {
	ops := []storage.Op{
		insertOp("k", map[string]any{"n": int64(0)}),
		{Kind: storage.Replace, Key: "k", Values: map[string]any{"n": int64(1)}},
		{Kind: storage.Merge, Key: "k", Values: map[string]any{"m": "x"}},
		{Kind: storage.Upsert, Key: "k", Values: map[string]any{"n": int64(2)}},
	}

	last := storage.Row{}
	for i, op := range ops {
		op.KeepsTime = true
		etag := putRow(t, table, op)
		row := getRow(t, table, "k")
		again := getRow(t, table, "k")
		name := "after write " + strconv.Itoa(i)
		switch {
		case row.WrittenAt.IsZero():
			t.Fatalf("%s: no time of the write", name)
		case row.WrittenAt.Location() != time.UTC:
			t.Errorf("%s: the time is in %s, want UTC", name, row.WrittenAt.Location())
		case row.WrittenAt.Before(last.WrittenAt):
			t.Errorf("%s: written at %s, want %s or later", name, row.WrittenAt, last.WrittenAt)
		case row.ETag != etag || !again.WrittenAt.Equal(row.WrittenAt):
			t.Errorf("%s: a read shows %s and ETag %s, want %s and %s", name, again.WrittenAt,
				row.ETag, row.WrittenAt, etag)
		}

		last = row
	}

	if len(last.Values) != 1 || last.Values["n"] != int64(2) {
		t.Errorf("values %v, want n = 2 alone", last.Values)
	}

	putRow(t, table, storage.Op{Kind: storage.Upsert, Key: "other", KeepsTime: true})
	if row := getRow(t, table, "k"); !row.WrittenAt.Equal(last.WrittenAt) {
		t.Errorf("written at %s after a write of another row, want %s", row.WrittenAt,
			last.WrittenAt)
	}
}
