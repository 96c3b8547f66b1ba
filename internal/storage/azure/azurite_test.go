package azure_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/azure"
)

func TestTable_Values(t *testing.T) {
	t.Parallel()
	table := onAzurite(t, azure.Config{}).Table()
	values := map[string]any{
		"Text": "ä 'quoted' \"too\" <b>&\n", "Digits": "42", "Empty": "",
		"Int": int64(math.MaxInt64), "Small": int64(-1), "Zero": int64(0),
		"Float": 1.25, "Whole": 3.0, "Huge": 1e300, "Inf": math.Inf(-1),
		"Yes": true, "No": false, "Bytes": []byte{0, 1, 0xff}, "None": []byte{},
		"At": time.Date(2026, 7, 1, 12, 0, 0, 123456700, time.UTC), "Day": time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	tags, err := table.Transact(t.Context(), "p", []storage.Op{{Kind: storage.Insert, Key: "k", Values: values}})
	must(t, err)
	row, err := table.Get(t.Context(), "p", "k")
	must(t, err)
	page, err := table.Range(t.Context(), storage.Query{Partition: "p"})
	must(t, err)
	for _, r := range append(page.Rows, row) {
		if !reflect.DeepEqual(r.Values, values) {
			t.Errorf("values = %#v\nwant %#v", r.Values, values)
		}
		if r.ETag != tags[0] || r.Partition != "p" || r.Key != "k" {
			t.Errorf("row %s/%s has ETag %s, want %s", r.Partition, r.Key, r.ETag, tags[0])
		}
	}
}

func TestTable_ValueUnknown(t *testing.T) {
	t.Parallel()
	table := open(t, azure.Config{ConnectionString: connectTo("http://127.0.0.1:1")}).Table()
	ops := []storage.Op{{Kind: storage.Insert, Key: "a"}, {Kind: storage.Insert, Key: "b", Values: map[string]any{"N": 1}}}
	_, err := table.Transact(t.Context(), "p", ops)
	if storage.KindOf(err) != storage.Other || storage.FailedAt(err) != 1 {
		t.Errorf("err = %v at %d", err, storage.FailedAt(err))
	}
}

func TestTable_QuotesInKeys(t *testing.T) {
	t.Parallel()
	table := onAzurite(t, azure.Config{}).Table()
	const partition = "it's"
	for _, kind := range []storage.OpKind{storage.Insert, storage.Replace, storage.Merge, storage.Upsert} {
		_, err := table.Transact(t.Context(), partition, []storage.Op{{Kind: kind, Key: "o'k%27", Values: map[string]any{"V": "%27'"}}})
		if err != nil {
			t.Fatalf("kind %d: %v", kind, err)
		}
		row, err := table.Get(t.Context(), partition, "o'k%27")
		if err != nil || row.Values["V"] != "%27'" {
			t.Fatalf("kind %d: row %v, %v", kind, row, err)
		}
		page, err := table.Range(t.Context(), storage.Query{Partition: partition, From: "o'", To: "o'z"})
		if err != nil || len(page.Rows) != 1 {
			t.Fatalf("kind %d: %d rows, %v", kind, len(page.Rows), err)
		}
	}
	_, err := table.Transact(t.Context(), partition, []storage.Op{{Kind: storage.Delete, Key: "o'k%27"}})
	must(t, err)
}

func TestTable_TransactFailedAt(t *testing.T) {
	t.Parallel()
	table := onAzurite(t, azure.Config{}).Table()
	tags, err := table.Transact(t.Context(), "p", []storage.Op{{Kind: storage.Insert, Key: "a"}, {Kind: storage.Insert, Key: "b"}})
	must(t, err)
	_, err = table.Transact(t.Context(), "p", []storage.Op{{Kind: storage.Replace, Key: "a"}})
	must(t, err)
	fine := storage.Op{Kind: storage.Upsert, Key: "x"}
	tests := map[string]struct {
		ops  []storage.Op
		kind storage.Kind
		at   int
	}{
		"exists":        {[]storage.Op{fine, {Kind: storage.Insert, Key: "b"}}, storage.Conflict, 1},
		"exists, first": {[]storage.Op{{Kind: storage.Insert, Key: "b"}, fine}, storage.Conflict, 0},
		"not there":     {[]storage.Op{fine, {Kind: storage.Upsert, Key: "y"}, {Kind: storage.Merge, Key: "c"}}, storage.NotFound, 2},
		"delete":        {[]storage.Op{fine, {Kind: storage.Delete, Key: "c"}}, storage.NotFound, 1},
		"other version": {[]storage.Op{{Kind: storage.Replace, Key: "a", IfMatch: tags[0]}, fine}, storage.Precondition, 0},
		"large value":   {[]storage.Op{fine, {Kind: storage.Insert, Key: "z", Values: map[string]any{"V": make([]byte, 70<<10)}}}, storage.TooLarge, 1},
		"twice":         {[]storage.Op{fine, fine}, storage.Other, 1},
		"none":          {nil, storage.Other, -1},
	}
	for name, test := range tests {
		_, err := table.Transact(t.Context(), "p", test.ops)
		if storage.KindOf(err) != test.kind || storage.FailedAt(err) != test.at {
			t.Errorf("%s: err = %v at %d, want %v at %d", name, err, storage.FailedAt(err), test.kind, test.at)
		}
	}
	if page, err := table.Range(t.Context(), storage.Query{Partition: "p"}); err != nil || !slices.Equal(keys(page.Rows), []string{"a", "b"}) {
		t.Errorf("rows = %v, %v: a failed transaction left something", keys(page.Rows), err)
	}
}

func TestTable_TransactLimits(t *testing.T) {
	t.Parallel()
	table := onAzurite(t, azure.Config{}).Table()
	ops := make([]storage.Op, storage.MaxOps+1)
	for i := range ops {
		ops[i] = storage.Op{Kind: storage.Insert, Key: fmt.Sprintf("k%03d", i), Values: map[string]any{"N": int64(i)}}
	}
	if _, err := table.Transact(t.Context(), "p", ops); !storage.Is(err, storage.TooLarge) {
		t.Errorf("101 operations: %v", err)
	}
	tags, err := table.Transact(t.Context(), "p", ops[:storage.MaxOps])
	if err != nil || len(tags) != storage.MaxOps || slices.Contains(tags, "") {
		t.Fatalf("100 operations: %d tags, %v", len(tags), err)
	}
	for i := range ops {
		ops[i].Kind, ops[i].Values = storage.Upsert, map[string]any{"V": make([]byte, 40<<10)}
	}
	if _, err := table.Transact(t.Context(), "p", ops[:storage.MaxOps]); !storage.Is(err, storage.TooLarge) {
		t.Errorf("5 MiB: %v", err)
	}
}

func TestQueue_LongestDelay(t *testing.T) {
	t.Parallel()
	q := onAzurite(t, azure.Config{}).Tickets()
	must(t, q.Put(t.Context(), "lane 1", 7*24*time.Hour))
	if n, err := q.Length(t.Context()); n != 1 || err != nil {
		t.Errorf("length = %d, %v", n, err)
	}
}

func TestBlobs_ListBeyondOneAnswer(t *testing.T) {
	t.Parallel()
	b := onAzurite(t, azure.Config{}).Bodies()
	for i := range 12 {
		must(t, b.Put(t.Context(), fmt.Sprintf("lane/%02d", i), []byte("x")))
	}
	found, err := b.List(t.Context(), "lane/", "lane/09")
	if err != nil || len(found) != 2 || found[0].Name != "lane/10" {
		t.Errorf("found %v, %v", found, err)
	}
	if found, err = b.List(t.Context(), "lane/", "lane/11"); err != nil || len(found) != 0 {
		t.Errorf("after the last: %v, %v", found, err)
	}
}

func TestBlobs_Large(t *testing.T) {
	t.Parallel()
	b := onAzurite(t, azure.Config{}).Bodies()
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	must(t, b.Put(t.Context(), "large", data))
	got, err := b.Get(t.Context(), "large")
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestLeases_RenewWithoutBlob(t *testing.T) {
	t.Parallel()
	l := onAzurite(t, azure.Config{}).Leases()
	if err := l.Renew(t.Context(), "none", leaseID); !storage.Is(err, storage.Conflict) {
		t.Errorf("renew: %v", err)
	}
	if err := l.Release(t.Context(), "none", leaseID); !storage.Is(err, storage.Conflict) {
		t.Errorf("release: %v", err)
	}
}
