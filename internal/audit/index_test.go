package audit_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/internal/audit"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
)

var quiet = slog.New(slog.DiscardHandler)

// encode returns the detail of an entry about a key.
func encode(t *testing.T, key, reason string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"filter": map[string]any{"key": key},
		"reason": reason})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rowsOf returns all rows of the partition of the audit log.
func rowsOf(t *testing.T, l *audit.Log) []storage.Row {
	t.Helper()
	found, err := rows.ReadFirst(t.Context(), l.Table, storage.Query{Partition: "audit"}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A list has no row of the index.
func TestLog_ReadsEntriesOnly(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	recordAll(t, l, c, audit.Entry{Action: "pause", Subject: "s", Detail: `{"key":"/a"}`})
	erase(t, l, "id", "/b")
	if got := actionsOf(readAll(t, l, audit.Query{Limit: 10})); len(got) != 1 || got[0] != "pause" {
		t.Errorf("got %v, want the pause alone", got)
	}
}

// The clean-up removes the rows of the index with the entries, also if some of these rows are
// missing.
func TestLog_RemoveExpiredRemovesTheIndex(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	for i := range 300 {
		l.Record(t.Context(), audit.Entry{Action: "old", Subject: fmt.Sprint("s", i),
			Detail: encode(t, "/a", "")})
	}

	for i, row := range rowsOf(t, l) {
		if row.Key > ":" && i%50 == 0 {
			_, err := l.Table.Transact(t.Context(), "audit",
				[]storage.Op{{Kind: storage.Delete, Key: row.Key}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}

	c.now = c.now.Add(31 * 24 * time.Hour)
	l.Record(t.Context(), audit.Entry{Action: "new", Subject: "s"})
	if done, err := l.RemoveExpired(t.Context()); !done || err != nil {
		t.Errorf("got done %t, %v, want true and no error", done, err)
	}

	for _, row := range rowsOf(t, l) {
		if row.Key > ":" && !strings.HasSuffix(row.Key, rowsOf(t, l)[0].Key) {
			t.Errorf("got the row %s, want only rows of the new entry", row.Key)
		}
	}
}

// A large backlog takes several calls, each of which removes its share.
func TestLog_RemoveExpiredIsNotDone(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	const n = 26_000
	for range n {
		l.Record(t.Context(), audit.Entry{Action: "old"})
	}

	c.now = c.now.Add(31 * 24 * time.Hour)

	for i, want := range []bool{false, true} {
		if done, err := l.RemoveExpired(t.Context()); done != want || err != nil {
			t.Errorf("call %d: got done %t, %v, want %t and no error", i+1, done, err, want)
		}
	}

	if got := readAll(t, l, audit.Query{Limit: 500}); len(got) != 0 {
		t.Errorf("got %d entries, want none", len(got))
	}
}

// An entry that storage refuses to remove keeps no other entry.
func TestLog_RemoveExpiredLeavesARefusedEntry(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	for range 250 {
		l.Record(t.Context(), audit.Entry{Action: "old", Subject: "s"})
	}

	refused := rowsOf(t, l)[100].Key
	faults := storagetest.NewFaults()
	faults.Set(func(c storagetest.Call) storagetest.Fault {
		for i, op := range c.Ops {
			if op.Kind == storage.Delete && op.Key == refused {
				return storagetest.Fault{Kind: storagetest.FailBefore,
					Err: &storage.Error{Op: "table transact", Kind: storage.Other, Index: i}}
			}
		}
		return storagetest.Fault{}
	})

	l.Table = faults.Table(l.Table)
	c.now = c.now.Add(31 * 24 * time.Hour)
	done, err := l.RemoveExpired(t.Context())
	got := readAll(t, l, audit.Query{Limit: 500})
	if !done || !storage.Is(err, storage.Other) || len(got) != 1 {
		t.Errorf("got done %t, %v and %d entries, want the refusal, and the refused entry alone",
			done, err, len(got))
	}
}
