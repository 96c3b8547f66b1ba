package storagetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"weir/internal/storage"
)

func transactKinds(t *testing.T, table storage.Table) {
	both := map[string]any{"A": "a", "B": "b"}
	putRow(t, table, insertOp("k", both))
	putRow(t, table, storage.Op{Kind: storage.Merge, Key: "k",
		Values: map[string]any{"B": int64(2), "C": true}})

	if got := getRow(t, table, "k").Values; !sameValues(got,
		map[string]any{"A": "a", "B": int64(2), "C": true}) {
		t.Errorf("after merge: got %v, want A a, B 2 and C true", got)
	}

	putRow(t, table, storage.Op{Kind: storage.Replace, Key: "k", Values: map[string]any{"D": "d"}})
	if got := getRow(t, table, "k").Values; !sameValues(got, map[string]any{"D": "d"}) {
		t.Errorf("after replace: got %v, want D alone", got)
	}

	putRow(t, table, storage.Op{Kind: storage.Upsert, Key: "k", Values: map[string]any{"E": "e"}})
	if got := getRow(t, table, "k").Values; !sameValues(got, map[string]any{"E": "e"}) {
		t.Errorf("after the upsert of a row that exists: got %v, want all columns replaced", got)
	}

	if tag := putRow(t, table, storage.Op{Kind: storage.Delete, Key: "k"}); tag != "" {
		t.Errorf("got ETag %q of a delete, want none", tag)
	}

	_, err := table.Get(t.Context(), "p", "k")
	wantKind(t, "after delete", err, storage.NotFound)
	putRow(t, table, storage.Op{Kind: storage.Upsert, Key: "k", Values: both})
	if got := getRow(t, table, "k").Values; !sameValues(got, both) {
		t.Errorf("after the upsert of a new row: got %v, want both columns", got)
	}
}

func transactIfMatch(t *testing.T, table storage.Table) {
	old := putRow(t, table, insertOp("k", map[string]any{"N": int64(1)}))
	now := putRow(t, table, storage.Op{Kind: storage.Replace, Key: "k", IfMatch: old,
		Values: map[string]any{"N": int64(2)}})

	for _, kind := range []storage.OpKind{storage.Replace, storage.Merge, storage.Delete} {
		_, err := table.Transact(t.Context(), "p",
			[]storage.Op{{Kind: kind, Key: "k", IfMatch: old,
				Values: map[string]any{"N": int64(3)}}})
		wantKind(t, fmt.Sprintf("kind %d, old ETag", kind), err, storage.Precondition)
		if storage.FailedAt(err) != 0 {
			t.Errorf("kind %d failed at %d, want 0", kind, storage.FailedAt(err))
		}

		for _, match := range []storage.ETag{old, "", storage.AnyETag} {
			_, err = table.Transact(t.Context(), "p",
				[]storage.Op{{Kind: kind, Key: "none", IfMatch: match}})
			wantKind(t, fmt.Sprintf("kind %d, no row, match %q", kind, match), err,
				storage.NotFound)
		}
	}

	if row := getRow(t, table, "k"); row.ETag != now || row.Values["N"] != int64(2) {
		t.Errorf("after refusals: %+v, want ETag %v and N %v", row, now, int64(2))
	}

	now = putRow(t, table, storage.Op{Kind: storage.Merge, Key: "k", IfMatch: now})
	now = putRow(t, table, storage.Op{Kind: storage.Merge, Key: "k", IfMatch: storage.AnyETag,
		Values: map[string]any{"M": now != ""}})
	putRow(t, table, storage.Op{Kind: storage.Delete, Key: "k", IfMatch: now})
	putRow(t, table, insertOp("k", nil))
	_, err := table.Transact(t.Context(), "p",
		[]storage.Op{{Kind: storage.Replace, Key: "k", IfMatch: now}})
	wantKind(t, "ETag from before the row was deleted and inserted", err, storage.Precondition)
}

// transactETags checks that a transaction returns the new ETags of its rows in order. The next
// transaction uses these ETags as conditions.
func transactETags(t *testing.T, table storage.Table) {
	insertRows(t, table, "gone", "merged", "replaced")
	seen := map[storage.ETag]bool{}
	tags, err := table.Transact(t.Context(), "p", []storage.Op{
		{Kind: storage.Replace, Key: "replaced"}, insertOp("new", nil),
		{Kind: storage.Delete, Key: "gone"},
		{Kind: storage.Merge, Key: "merged"}, {Kind: storage.Upsert, Key: "upserted"},
	})

	requireNoError(t, err)
	keys := []string{"replaced", "new", "", "merged", "upserted"}
	for range 3 {
		if len(tags) != len(keys) {
			t.Fatalf("%d ETags, want one for each of %d operations", len(tags), len(keys))
		}

		var ops []storage.Op
		for i, key := range keys {
			if key == "" {
				if tags[i] != "" {
					t.Errorf("got ETag %q of a delete, want none", tags[i])
				}
				continue
			}

			if row := getRow(t, table, key); row.ETag != tags[i] {
				t.Errorf("%s: ETag %s, want %s", key, row.ETag, tags[i])
			}

			if seen[tags[i]] && len(ops) == 0 {
				t.Errorf("%s: ETag %s again, want a new one", key, tags[i])
			}

			ops = append(ops, storage.Op{Kind: storage.Replace, Key: key, IfMatch: tags[i]})
		}

		for _, tag := range tags {
			seen[tag] = true
		}

		keys = slices.DeleteFunc(keys, func(k string) bool { return k == "" })
		tags, err = table.Transact(t.Context(), "p", ops)
		requireNoError(t, err)
	}
}

func transactFailedAt(t *testing.T, table storage.Table) {
	insertRows(t, table, "a", "b")
	old := getRow(t, table, "a").ETag
	putRow(t, table, storage.Op{Kind: storage.Replace, Key: "a"})
	bad := map[string]struct {
		op   storage.Op
		kind storage.Kind
	}{
		"insert, exists":     {insertOp("b", nil), storage.Conflict},
		"replace, not there": {storage.Op{Kind: storage.Replace, Key: "c"}, storage.NotFound},
		"merge, not there":   {storage.Op{Kind: storage.Merge, Key: "c"}, storage.NotFound},
		"delete, not there":  {storage.Op{Kind: storage.Delete, Key: "c"}, storage.NotFound},
		"replace, other ETag": {storage.Op{Kind: storage.Replace, Key: "a", IfMatch: old},
			storage.Precondition},
		"merge, other ETag": {storage.Op{Kind: storage.Merge, Key: "a", IfMatch: old},
			storage.Precondition},
		"delete, other ETag": {storage.Op{Kind: storage.Delete, Key: "a", IfMatch: old},
			storage.Precondition},
		"value too large": {insertOp("z", map[string]any{"V": make([]byte, 70<<10)}),
			storage.TooLarge},
	}
	for name, test := range bad {
		for _, at := range []int{0, 2, 4, 11} {
			ops := make([]storage.Op, max(5, at+1))
			for i := range ops {
				ops[i] = storage.Op{Kind: storage.Upsert, Key: fmt.Sprintf("x%d", i)}
			}

			ops[at] = test.op
			tags, err := table.Transact(t.Context(), "p", ops)
			if storage.KindOf(err) != test.kind || storage.FailedAt(err) != at || tags != nil {
				t.Errorf("%s: err = %v at %d, want %v at %d", name, err, storage.FailedAt(err),
					test.kind, at)
			}
		}
	}

	wantKeys(t, "all or nothing", queryPage(t, table, storage.Query{}).Rows, "a", "b")
}

func transactRefused(t *testing.T, table storage.Table) {
	fine := insertOp("x", nil)
	many := make([]storage.Op, storage.MaxOps+1)
	for i := range many {
		many[i] = insertOp(fmt.Sprintf("k%03d", i), nil)
	}

	large := make([]storage.Op, storage.MaxOps)
	for i := range large {
		large[i] = insertOp(fmt.Sprintf("k%03d", i), map[string]any{"V": make([]byte, 40<<10)})
	}

	tests := map[string]struct {
		ops  []storage.Op
		kind storage.Kind
		at   int
	}{
		"none":           {nil, storage.Other, -1},
		"101 operations": {many, storage.TooLarge, -1},
		"over 4 MiB":     {large, storage.TooLarge, -1},
		"a row twice": {[]storage.Op{fine, insertOp("y", nil), {Kind: storage.Merge, Key: "x"}},
			storage.Other, 2},
		"unknown kind": {[]storage.Op{fine, {Kind: 0, Key: "y"}}, storage.Other, 1},
	}
	for name, test := range tests {
		_, err := table.Transact(t.Context(), "p", test.ops)
		if storage.KindOf(err) != test.kind || storage.FailedAt(err) != test.at {
			t.Errorf("%s: err = %v at %d, want %v at %d", name, err, storage.FailedAt(err),
				test.kind, test.at)
		}
	}

	wantKeys(t, "nothing done", queryPage(t, table, storage.Query{}).Rows)
}

// transactLargest makes a transaction of 100 operations whose request has nearly 4 MiB, base64 and
// headers included.
func transactLargest(t *testing.T, table storage.Table) {
	ops := make([]storage.Op, storage.MaxOps)
	for i := range ops {
		ops[i] = insertOp(fmt.Sprintf("k%03d", i), map[string]any{"V": make([]byte, 29<<10)})
	}

	tags, err := table.Transact(t.Context(), "p", ops)
	if err != nil || len(tags) != storage.MaxOps || slices.Contains(tags, "") {
		t.Fatalf("got %d ETags, %v, want one for each operation", len(tags), err)
	}

	if page := queryPage(t, table, storage.Query{Columns: []string{}}); len(page.Rows) !=
		storage.MaxOps {
		t.Errorf("%d rows, want %v", len(page.Rows), storage.MaxOps)
	}
}

// transactTwice makes the same transaction twice. The first call changes the ETag of the row !head.
// The second call has the old ETag as its condition, so it must fail.
func transactTwice(t *testing.T, table storage.Table) {
	head := putRow(t, table, insertOp("!head", nil))
	ops := []storage.Op{{Kind: storage.Replace, Key: "!head", IfMatch: head}, insertOp("m_1", nil)}
	_, err := table.Transact(t.Context(), "p", ops)
	requireNoError(t, err)
	_, err = table.Transact(t.Context(), "p", ops)
	if storage.KindOf(err) != storage.Precondition || storage.FailedAt(err) != 0 {
		t.Errorf("the second time: %v at %d, want a failed precondition at 0", err,
			storage.FailedAt(err))
	}
}

// transactOneWins checks that exactly one of several concurrent writers with the same ETag
// succeeds.
func transactOneWins(t *testing.T, table storage.Table) {
	const writers = 8
	tag := putRow(t, table, insertOp("!head", nil))
	for round := range 3 {
		won := make(chan storage.ETag, writers)
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				tags, err := table.Transact(t.Context(), "p", []storage.Op{
					{Kind: storage.Replace, Key: "!head", IfMatch: tag},
					insertOp(fmt.Sprintf("m_%d_%d", round, w), nil),
				})
				if err == nil {
					won <- tags[0]
				} else if storage.KindOf(err) != storage.Precondition ||
					storage.FailedAt(err) != 0 {
					t.Errorf("a loser's error: %v at %d, want a failed precondition at 0", err,
						storage.FailedAt(err))
				}
			})
		}

		group.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d: %d writers won, want 1", round, len(won))
		}

		tag = <-won
	}

	if rows := queryPage(t, table, storage.Query{From: "m_"}).Rows; len(rows) != 3 {
		t.Errorf("%d rows, want one of each round", len(rows))
	}
}

// transactSeenWhole checks that Range never returns a partly applied transaction: of two rows that
// are always written together, both are old or both are new.
func transactSeenWhole(t *testing.T, table storage.Table) {
	write := func(kind storage.OpKind, n int64) error {
		values := map[string]any{"N": n}
		_, err := table.Transact(t.Context(), "p",
			[]storage.Op{{Kind: kind, Key: "!head", Values: values},
				{Kind: kind, Key: "!tail", Values: values}})
		return err
	}

	requireNoError(t, write(storage.Insert, 0))
	var group sync.WaitGroup
	group.Go(func() {
		for n := range int64(30) {
			if err := write(storage.Replace, n+1); err != nil {
				t.Error(err)
			}
		}
	})
	defer group.Wait()

	for last := int64(0); last < 30 && !t.Failed(); {
		page := queryPage(t, table, storage.Query{To: "!u"})
		if len(page.Rows) != 2 || page.Rows[0].Values["N"] != page.Rows[1].Values["N"] {
			t.Fatalf("half a transaction: %+v, want two rows with the same N", page.Rows)
		}
		last = page.Rows[0].Values["N"].(int64)
	}
}
