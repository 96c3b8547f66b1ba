package memory_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/memory"
)

const (
	ours   = "0f8fad5b-d9cb-469f-a165-70867728950e"
	theirs = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
)

// TestTable_TransactAsAzure checks that the table refuses transactions that Azure refuses.
func TestTable_TransactAsAzure(t *testing.T) {
	t.Parallel()
	table := memory.New(newClock().Now).Table()
	row, many := map[string]any{}, map[string]any{}
	for i := range 253 {
		if many[fmt.Sprintf("V%d", i)] = true; i < 17 {
			row[fmt.Sprintf("V%d", i)] = make([]byte, 64<<10)
		}
	}

	tests := map[string]struct {
		key    string
		values map[string]any
		kind   storage.Kind
	}{
		"empty key":       {"", nil, storage.Other},
		"key too long":    {strings.Repeat("k", 1025), nil, storage.Other},
		"row over 1 MiB":  {"k", row, storage.TooLarge},
		"253 values":      {"k", many, storage.TooLarge},
		"Go's zero time":  {"k", map[string]any{"At": time.Time{}}, storage.Other},
		"name with dash":  {"k", map[string]any{"a-b": true}, storage.Other},
		"name with digit": {"k", map[string]any{"1a": true}, storage.Other},
		"reserved name":   {"k", map[string]any{"Timestamp": time.Now()}, storage.Other},
		"an int":          {"k", map[string]any{"N": 1}, storage.Other},
	}
	for name, test := range tests {
		ops := []storage.Op{{Kind: storage.Insert, Key: "fine"},
			{Kind: storage.Insert, Key: test.key, Values: test.values}}
		_, err := table.Transact(t.Context(), "p", ops)
		if storage.KindOf(err) != test.kind || storage.FailedAt(err) != 1 {
			t.Errorf("%s: %v at %d, want %v at 1", name, err, storage.FailedAt(err), test.kind)
		}
	}

	if _, err := table.Transact(t.Context(), "", []storage.Op{{Kind: storage.Insert, Key: "k"}}); !storage.Is(err,
		storage.Other) {
		t.Errorf("empty partition key: %v, want an error of kind Other", err)
	}

	if page, err := table.Range(t.Context(), storage.Query{Partition: "p"}); err != nil ||
		len(page.Rows) != 0 {
		t.Errorf("left behind: %v, %v, want 0 Rows and no error", page.Rows, err)
	}
}

// TestTable_RangeAgainstModel inserts and removes random keys, and compares ranges of the table
// with a plain set.
func TestTable_RangeAgainstModel(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	table, model := memory.New(newClock().Now).Table(), map[string]bool{}
	for range 400 {
		ops := map[string]storage.Op{}
		for range storage.MaxOps {
			key := fmt.Sprintf("m_%05d", random.IntN(12000))
			if model[key] && random.IntN(3) == 0 {
				ops[key] = storage.Op{Kind: storage.Delete, Key: key}
			} else {
				ops[key] = storage.Op{Kind: storage.Upsert, Key: key}
			}
		}

		var list []storage.Op
		for key, op := range ops {
			list = append(list, op)
			if model[key] = true; op.Kind == storage.Delete {
				delete(model, key)
			}
		}

		if _, err := table.Transact(t.Context(), "p", list); err != nil {
			t.Fatal(err)
		}
	}

	for range 200 {
		from, to := fmt.Sprintf("m_%05d", random.IntN(12000)),
			fmt.Sprintf("m_%05d", random.IntN(12000))
		want := keysWithin(model, from, to)
		page, err := table.Range(t.Context(), storage.Query{Partition: "p", From: from, To: to})
		if err != nil || page.More != (len(want) > 1000) {
			t.Fatalf("seed %d: more %t of %d, %v, want More %v and no error", seed, page.More,
				len(want), err, len(want) > 1000)
		}

		want = want[:min(1000, len(want))]
		if !slices.EqualFunc(page.Rows, want,
			func(r storage.Row, k string) bool { return r.Key == k }) {
			t.Fatalf("seed %d: %q to %q: %d rows, want %d", seed, from, to,
				len(page.Rows), len(want))
		}
	}
}

func keysWithin(model map[string]bool, from, to string) (keys []string) {
	for key := range model {
		if key >= from && key < to {
			keys = append(keys, key)
		}
	}

	slices.Sort(keys)
	return keys
}

func TestAccount_Queue(t *testing.T) {
	t.Parallel()
	a := memory.New(newClock().Now)
	if err := a.Queue("tickets").Put(t.Context(), "lane 1", 0); err != nil {
		t.Fatal(err)
	}

	if n, err := a.Queue("tickets").Length(t.Context()); n != 1 || err != nil {
		t.Errorf("the same name: %d, %v, want 1 and no error", n, err)
	}

	if n, err := a.Queue("poison").Length(t.Context()); n != 0 || err != nil {
		t.Errorf("another name: %d, %v, want 0 and no error", n, err)
	}
}

// An account has no timers: its clock alone decides when leases expire and when delayed queue
// messages appear.
func TestAccount_VirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, a := t.Context(), memory.New(time.Now)
		must(t, a.Queue("tickets").Put(ctx, "lane 1", time.Hour))
		must(t, a.Leases().Acquire(ctx, "1.0", ours, 15500*time.Millisecond))
		<-time.After(15600 * time.Millisecond)

		if err := a.Leases().Acquire(ctx, "1.0", theirs, time.Minute); !storage.Is(err,
			storage.Conflict) {
			t.Errorf("before 16 s, to which storage rounds up: %v, want an error of kind Conflict",
				err)
		}

		<-time.After(400 * time.Millisecond)
		must(t, a.Leases().Acquire(ctx, "1.0", theirs, time.Minute))
		<-time.After(time.Hour)
		if got, err := a.Queue("tickets").Get(ctx, 1, time.Minute); err != nil || len(got) != 1 {
			t.Errorf("after the delay: %v, %v, want one and no error", got, err)
		}
	})
}

func TestLeases_AcquireID(t *testing.T) {
	t.Parallel()
	l := memory.New(newClock().Now).Leases()
	for _, id := range []string{"", "holder 1"} {
		if err := l.Acquire(t.Context(), "1.0", id, time.Minute); !storage.Is(err, storage.Other) {
			t.Errorf("id %q: %v, want an error of kind Other", id, err)
		}
	}
}

func TestBlobs_ListModified(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := memory.New(c.Now).Blobs()
	must(t, b.Put(t.Context(), "n", nil))
	c.Advance(90*time.Second + time.Millisecond)
	must(t, b.Mark(t.Context(), "n"))
	found, err := b.List(t.Context(), "", "")
	if want := newClock().Now().Add(90 * time.Second); err != nil || len(found.Infos) != 1 ||
		!found.Infos[0].ModifiedAt.Equal(want) {
		t.Errorf("found %+v, %v, want modified at %v", found, err, want)
	}
}

func TestBlobs_ListLargest(t *testing.T) {
	t.Parallel()
	b := memory.New(newClock().Now).Blobs()
	for i := range 1001 {
		must(t, b.Put(t.Context(), fmt.Sprintf("%04d", i), nil))
	}

	found, err := b.List(t.Context(), "", "")
	if err != nil || len(found.Infos) != 1000 || found.Next == "" {
		t.Fatalf("%d blobs, next %q, %v, want 1000 Infos, a Next and no error", len(found.Infos),
			found.Next, err)
	}

	if found, err = b.List(t.Context(), "", found.Next); err != nil || len(found.Infos) != 1 ||
		found.Next != "" {
		t.Errorf("then %d blobs, next %q, %v, want 1 Info, no Next and no error", len(found.Infos),
			found.Next, err)
	}
}

// BenchmarkTable_Transact grows a partition as a lane does: each transaction adds a message row
// (m_) after all other rows, and the row of an idempotency key (i_) at a random place among the i_
// rows.
func BenchmarkTable_Transact(b *testing.B) {
	table := memory.New(time.Now).Table()
	for i := 0; b.Loop(); i++ {
		_, err := table.Transact(b.Context(), "p", []storage.Op{
			{Kind: storage.Upsert, Key: "!head"},
			{Kind: storage.Insert, Key: fmt.Sprintf("m_%020d", i)},
			{Kind: storage.Upsert, Key: fmt.Sprintf("i_%016x", rand.Uint64())},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
