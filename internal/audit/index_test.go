package audit_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/internal/audit"
	"weir/internal/lane"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

var quiet = slog.New(slog.DiscardHandler)

// encode returns the detail of an entry about a key.
func encode(t *testing.T, key, reason string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"filter": map[string]any{"key": key}, "reason": reason})
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

// makeOld turns all entries into entries of an earlier version, which wrote no index.
func makeOld(t *testing.T, l *audit.Log) {
	t.Helper()
	for _, row := range rowsOf(t, l) {
		op := storage.Op{Kind: storage.Delete, Key: row.Key}
		if row.Key < ":" {
			delete(row.Values, "Terms")
			op = storage.Op{Kind: storage.Replace, Key: row.Key, Values: row.Values}
		}
		if _, err := l.Table.Transact(t.Context(), "audit", []storage.Op{op}); err != nil {
			t.Fatal(err)
		}
	}
}

// Entries of earlier versions are indexed once, by the first erasure or by the clean-up. Entries that such a version
// has redacted keep their replacements.
func TestLog_RedactsEntriesOfEarlierVersions(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*audit.Log){
		"FirstErasure": func(*audit.Log) {},
		"CleanUp": func(l *audit.Log) {
			if done, err := l.RemoveExpired(t.Context()); !done || err != nil {
				t.Errorf("got done %t, %v, want true and no error", done, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, c, _ := newLog(t)
			many := make([]string, 150)
			for i := range many {
				many[i] = fmt.Sprintf("%q", fmt.Sprint("k", i))
			}
			for i := range 700 { // more than one page of the walk
				recordAll(t, l, c, audit.Entry{Action: "resume", Subject: fmt.Sprint("s", i),
					Detail: fmt.Sprintf(`{"Key":"k%d"}`, i)})
			}
			recordAll(t, l, c, audit.Entry{Action: "pause", Detail: `{"key":"/jane"}`},
				audit.Entry{Action: "edit", Subject: "id1", Detail: `{"note":"n"}`},
				audit.Entry{Action: "pause", Detail: `{"key":"` + lane.ErasedKey("/jane") + `"}`},
				audit.Entry{Action: "many", Detail: `{"keys":[` + strings.Join(many, ",") + `]}`})
			makeOld(t, l)
			prepare(l)
			recordAll(t, l, c, audit.Entry{Action: "new", Detail: `{"key":"/jane"}`})
			erase(t, l, "id1", "/jane")
			erase(t, l, "id2", lane.ErasedKey("/jane"))
			erase(t, l, "id3", "k5")
			hash := `{"key":"` + lane.ErasedKey("/jane") + `"}`
			got := detailsOf(t, l)
			if want := []string{hash, "", hash, `{"truncated":true}`, hash}; strings.Join(got[700:], "\n") !=
				strings.Join(want, "\n") {
				t.Errorf("got %q, want %q", got[700:], want)
			}
			if got[5] != `{"Key":"`+lane.ErasedKey("k5")+`"}` || got[6] != `{"Key":"k6"}` {
				t.Errorf("got %q and %q, want the first one redacted", got[5], got[6])
			}
		})
	}
}

// Storage fails while old entries are indexed. The next calls go on, and the erasure succeeds in the end.
func TestLog_IndexesOldEntriesInSpiteOfFailures(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	for i := range 1200 {
		recordAll(t, l, c, audit.Entry{Action: "resume", Detail: fmt.Sprintf(`{"key":"k%d"}`, i)})
	}
	makeOld(t, l)
	faults := storagetest.NewFaults()
	calls := 0
	faults.Set(func(c storagetest.Call) storagetest.Fault {
		if calls++; calls%7 == 0 {
			kinds := []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter}
			return storagetest.Fault{Kind: kinds[calls%2]}
		}
		return storagetest.Fault{}
	})
	l.Table = faults.Table(l.Table)
	var err error
	for range 20 {
		if err = l.Redact(t.Context(), "id", lane.ErasedKey("k7")); err == nil {
			break
		}
		if weir.KindOf(err) != weir.Unavailable {
			t.Fatalf("got %v, want Unavailable", err)
		}
	}
	faults.Set(nil)
	if got := detailsOf(t, l); err != nil || got[7] != `{"key":"`+lane.ErasedKey("k7")+`"}` {
		t.Errorf("got %v and the entry %s, want it redacted", err, got[7])
	}
}

// A walk over old entries that takes too long for one call goes on in the next one.
func TestLog_IndexesOldEntriesInSeveralCalls(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	for i := range 1200 {
		recordAll(t, l, c, audit.Entry{Action: "resume", Detail: fmt.Sprintf(`{"key":"k%d"}`, i)})
	}
	makeOld(t, l)
	l.Now = func() time.Time { c.now = c.now.Add(15 * time.Second); return c.now }
	if err := l.Redact(t.Context(), "id", lane.ErasedKey("k7")); weir.KindOf(err) != weir.Unavailable {
		t.Errorf("got %v, want Unavailable while old entries are left", err)
	}
	calls := 1
	for done := false; !done; calls++ {
		var err error
		if done, err = l.RemoveExpired(t.Context()); err != nil || calls > 10 {
			t.Fatal(err, calls)
		}
	}
	if err := l.Redact(t.Context(), "id", lane.ErasedKey("k7")); err != nil || calls < 3 {
		t.Errorf("got %v after %d calls, want no error after some calls", err, calls)
	}
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

// The clean-up removes the rows of the index with the entries, also if some of these rows are missing.
func TestLog_RemoveExpiredRemovesTheIndex(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	for i := range 300 {
		l.Record(t.Context(), audit.Entry{Action: "old", Subject: fmt.Sprint("s", i), Detail: encode(t, "/a", "")})
	}
	for i, row := range rowsOf(t, l) {
		if row.Key > ":" && i%50 == 0 {
			_, err := l.Table.Transact(t.Context(), "audit", []storage.Op{{Kind: storage.Delete, Key: row.Key}})
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
		if row.Key > ":" && row.Key != "a_index" && !strings.HasSuffix(row.Key, rowsOf(t, l)[0].Key) {
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
		t.Errorf("got done %t, %v and %d entries, want the refusal, and the refused entry alone", done,
			err, len(got))
	}
}
