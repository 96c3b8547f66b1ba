package storagetest

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"weir/internal/storage"
)

// Table is the suite for storage.Table. The function open returns an empty table.
func Table(t *testing.T, open func(t *testing.T) storage.Table) {
	t.Helper()
	runEach(t, open, map[string]func(*testing.T, storage.Table){
		"Get/NotFound":              getNotFound,
		"Get/ContextEnded":          tableContextEnded,
		"Values/RoundTrip":          valuesRoundTrip,
		"Values/Copied":             valuesCopied,
		"Values/Limits":             valuesLimits,
		"Values/Nil":                valuesNil,
		"Keys/Unusual":              keysUnusual,
		"Keys/Refused":              keysRefused,
		"Range/Order":               rangeOrder,
		"Range/Bounds":              rangeBounds,
		"Range/Pages":               rangePages,
		"Range/DefaultLimit":        rangeDefaultLimit,
		"Range/Columns":             rangeColumns,
		"Range/OtherPartition":      rangeOtherPartition,
		"Transact/Kinds":            transactKinds,
		"Transact/IfMatch":          transactIfMatch,
		"Transact/ETags":            transactETags,
		"Transact/FailedAt":         transactFailedAt,
		"Transact/Refused":          transactRefused,
		"Transact/Largest":          transactLargest,
		"Transact/Twice":            transactTwice,
		"Transact/OneWins":          transactOneWins,
		"Transact/SeenWholeOrNever": transactSeenWhole,
		"Transact/KeepsTime":        transactKeepsTime,
	})
}

func getNotFound(t *testing.T, table storage.Table) {
	_, err := table.Get(t.Context(), "p", "none")
	wantKind(t, "empty table", err, storage.NotFound)
	putRow(t, table, insertOp("k", nil))
	_, err = table.Get(t.Context(), "p", "none")
	wantKind(t, "other row", err, storage.NotFound)
	_, err = table.Get(t.Context(), "q", "k")
	wantKind(t, "other partition", err, storage.NotFound)
}

func tableContextEnded(t *testing.T, table storage.Table) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := table.Get(ctx, "p", "k")
	wantKind(t, "get", err, storage.Unavailable)
	_, err = table.Range(ctx, storage.Query{Partition: "p"})
	wantKind(t, "range", err, storage.Unavailable)
	_, err = table.Transact(ctx, "p", []storage.Op{insertOp("k", nil)})
	wantKind(t, "transact, nothing sent", err, storage.Unavailable)
	_, err = table.Get(t.Context(), "p", "k")
	wantKind(t, "get a row of a request that was not sent", err, storage.NotFound)
}

func valuesRoundTrip(t *testing.T, table storage.Table) {
	values := map[string]any{
		"Text": "ä 'quoted' \"too\" <b>&amp;\r\n\t\\ 日本 🏞", "Digits": "42", "Empty": "",
		"Null":     "null",
		"TimeText": "2026-07-01T12:00:00.0000000Z",
		"Int":      int64(math.MaxInt64), "Least": int64(math.MinInt64), "Small": int64(-1),
		"Zero":  int64(0),
		"Float": 1.25, "Whole": 3.0, "Huge": 1e300, "Inf": math.Inf(-1), "Yes": true, "No": false,
		"Bytes": []byte{0, 1, 0xff}, "None": []byte{},
		"Body": bytes.Repeat([]byte("0123456789\xff\x00abc."), 60<<10/16),
		"At":   time.Date(2026, 7, 1, 12, 0, 0, 123456700, time.UTC),
		"Day":  time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC),
	}

	tag := putRow(t, table, insertOp("k", values))
	row := getRow(t, table, "k")
	page, err := table.Range(t.Context(), storage.Query{Partition: "p"})
	requireNoError(t, err)

	for _, r := range append(page.Rows, row) {
		if !sameValues(r.Values, values) {
			t.Errorf("values = %.300v\nwant %.300v", r.Values, values)
		}
		if r.ETag != tag || r.Partition != "p" || r.Key != "k" {
			t.Errorf("row %s/%s has ETag %s, want %s", r.Partition, r.Key, r.ETag, tag)
		}
	}

	zone := time.FixedZone("east", 7200)
	putRow(t, table, insertOp("t",
		map[string]any{"At": time.Date(2026, 7, 1, 14, 0, 0, 123456789, zone)}))
	if got := getRow(t, table, "t").Values; !sameValues(got, map[string]any{"At": values["At"]}) {
		t.Errorf("a time comes back as %v, want UTC and 100 ns", got)
	}
}

// valuesCopied checks that later changes to written or returned values do not change the stored
// row.
func valuesCopied(t *testing.T, table storage.Table) {
	values := map[string]any{"B": []byte("given")}
	putRow(t, table, insertOp("k", values))
	values["B"].([]byte)[0] = 'X'
	values["C"] = true
	row := getRow(t, table, "k")
	if !sameValues(row.Values, map[string]any{"B": []byte("given")}) {
		t.Errorf("after the caller changed its map: %v, want \"given\"", row.Values)
	}

	row.Values["B"].([]byte)[0] = 'Y'
	row.Values["C"] = true
	if got := getRow(t, table, "k").Values; !sameValues(got, map[string]any{"B": []byte("given")}) {
		t.Errorf("after a reader changed its map: %v, want \"given\"", got)
	}
}

func valuesLimits(t *testing.T, table storage.Table) {
	fits := map[string]any{
		"B": make([]byte, 64<<10), "S": strings.Repeat("x", 32<<10),
		"U": strings.Repeat("ä", 32<<10),
	}

	putRow(t, table, insertOp("k", fits))
	if !sameValues(getRow(t, table, "k").Values, fits) {
		t.Error("the largest values come back changed, want those written")
	}

	for name, values := range map[string]map[string]any{
		"bytes": {"B": make([]byte, 64<<10+1)},
		"text":  {"S": strings.Repeat("x", 32<<10+1)},
	} {
		_, err := table.Transact(t.Context(), "p",
			[]storage.Op{insertOp("fine", nil), insertOp("large", values)})
		wantKind(t, name, err, storage.TooLarge)
		_, err = table.Get(t.Context(), "p", "fine")
		wantKind(t, name+": nothing done", err, storage.NotFound)
	}

	_, err := table.Transact(t.Context(), "p",
		[]storage.Op{insertOp("fine", nil), insertOp("odd", map[string]any{"N": 1})})
	if storage.KindOf(err) != storage.Other || storage.FailedAt(err) != 1 {
		t.Errorf("Transact with a value of no stored type = %v at %d, want kind Other at 1", err,
			storage.FailedAt(err))
	}
}

func valuesNil(t *testing.T, table storage.Table) {
	putRow(t, table, insertOp("k", map[string]any{"A": "a", "B": nil}))
	if got := getRow(t, table, "k").Values; !sameValues(got, map[string]any{"A": "a"}) {
		t.Errorf("after insert: got %v, want A alone", got)
	}

	putRow(t, table, storage.Op{Kind: storage.Merge, Key: "k",
		Values: map[string]any{"A": nil, "C": "c"}})
	if got := getRow(t, table, "k").Values; !sameValues(got, map[string]any{"A": "a", "C": "c"}) {
		t.Errorf("after merge: %v, want A as it was", got)
	}

	putRow(t, table, insertOp("typed", map[string]any{"B": []byte(nil)}))
	if got := getRow(t, table, "typed").Values; !sameValues(got, map[string]any{"B": []byte{}}) {
		t.Errorf("bytes that are nil: %#v, want empty", got)
	}

	putRow(t, table, insertOp("bare", nil))
	if got := getRow(t, table, "bare").Values; got == nil || len(got) != 0 {
		t.Errorf("a row without values: %#v, want an empty map", got)
	}
}

func keysUnusual(t *testing.T, table storage.Table) {
	keys := []string{"!head", "a b", "it's", "o'k%27", "<&>\"", "m_00000000000000000001", "ä€日",
		"🏞", "a+b=c", "x:y;z,@$"}
	for _, partition := range []string{"1.0", "it's", "ä ö%20"} {
		for _, key := range keys {
			for _, kind := range []storage.OpKind{storage.Insert, storage.Replace, storage.Merge,
				storage.Upsert} {
				_, err := table.Transact(t.Context(), partition,
					[]storage.Op{{Kind: kind, Key: key, Values: map[string]any{"K": key}}})
				if err != nil {
					t.Fatalf("Transact of kind %d on %q/%q = %v, want no error", kind,
						partition, key, err)
				}
			}

			row, err := table.Get(t.Context(), partition, key)
			if err != nil || row.Key != key || row.Partition != partition ||
				row.Values["K"] != key {
				t.Errorf("%q/%q: got %+v, %v, want Key %v, Partition %v, K %v and no error",
					partition, key, row, err, key, partition, key)
			}

			page, err := table.Range(t.Context(),
				storage.Query{Partition: partition, From: key, To: key + "\x01"})
			if err == nil && len(page.Rows) != 1 {
				t.Errorf("%q/%q: got %d rows of a range, want 1", partition, key, len(page.Rows))
			}

			requireNoError(t, err)
			_, err = table.Transact(t.Context(), partition,
				[]storage.Op{{Kind: storage.Delete, Key: key}})
			requireNoError(t, err)
		}
	}
}

func keysRefused(t *testing.T, table storage.Table) {
	for _, key := range []string{"a/b", `a\b`, "a#b", "a?b", "a\nb", "a\x00b", "a\x7fb",
		"a\u0085b"} {
		_, err := table.Transact(t.Context(), "p", []storage.Op{insertOp(key, nil)})
		wantKind(t, "insert "+key, err, storage.Other)
		_, err = table.Transact(t.Context(), key, []storage.Op{insertOp("k", nil)})
		wantKind(t, "partition "+key, err, storage.Other)
	}

	page, err := table.Range(t.Context(), storage.Query{Partition: "p"})
	requireNoError(t, err)
	wantKeys(t, "after refusals", page.Rows)
}

// putRow applies one operation in partition "p", and returns the row's new ETag.
func putRow(t *testing.T, table storage.Table, op storage.Op) storage.ETag {
	t.Helper()
	tags, err := table.Transact(t.Context(), "p", []storage.Op{op})
	requireNoError(t, err)
	if len(tags) != 1 {
		t.Fatalf("%d ETags for one operation, want 1", len(tags))
	}
	return tags[0]
}

func getRow(t *testing.T, table storage.Table, key string) storage.Row {
	t.Helper()
	row, err := table.Get(t.Context(), "p", key)
	requireNoError(t, err)
	return row
}
