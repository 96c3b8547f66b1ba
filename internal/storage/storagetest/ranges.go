package storagetest

import (
	"fmt"
	"slices"
	"testing"

	"weir/internal/storage"
)

func insertRows(t *testing.T, table storage.Table, keys ...string) {
	t.Helper()
	for chunk := range slices.Chunk(keys, storage.MaxOps) {
		ops := make([]storage.Op, len(chunk))
		for i, key := range chunk {
			ops[i] = insertOp(key, map[string]any{"K": key, "N": int64(len(key))})
		}
		_, err := table.Transact(t.Context(), "p", ops)
		requireNoError(t, err)
	}
}

func queryPage(t *testing.T, table storage.Table, q storage.Query) storage.Page {
	t.Helper()
	q.Partition = "p"
	page, err := table.Range(t.Context(), q)
	requireNoError(t, err)
	return page
}

func rangeOrder(t *testing.T, table storage.Table) {
	keys := []string{"!head", "!swept", "!tail", "0", "10", "9", "A", "Z", "_", "a", "a-", "a0",
		"aa", "b_1", "b_1_", "z", "ä", "€", "日"}
	mixed := slices.Clone(keys)
	for i := range mixed {
		j := i * 7 % len(mixed)
		mixed[i], mixed[j] = mixed[j], mixed[i]
	}

	insertRows(t, table, mixed...)
	page := queryPage(t, table, storage.Query{})
	wantKeys(t, "all", page.Rows, keys...)
	if page.More {
		t.Error("More = true after all rows, want false")
	}

	for _, r := range page.Rows {
		if r.ETag == "" || r.Values["K"] != r.Key {
			t.Errorf("row %q: ETag %q, values %v, want an ETag and K %v", r.Key, r.ETag,
				r.Values, r.Key)
		}
	}
}

func rangeBounds(t *testing.T, table storage.Table) {
	insertRows(t, table, "a", "b", "b0", "c", "d")
	tests := map[string]struct {
		q    storage.Query
		want []string
	}{
		"from":                 {storage.Query{From: "b"}, []string{"b", "b0", "c", "d"}},
		"from between":         {storage.Query{From: "aa"}, []string{"b", "b0", "c", "d"}},
		"after":                {storage.Query{After: "b"}, []string{"b0", "c", "d"}},
		"after between":        {storage.Query{After: "bb"}, []string{"c", "d"}},
		"to":                   {storage.Query{To: "b0"}, []string{"a", "b"}},
		"from to":              {storage.Query{From: "b", To: "d"}, []string{"b", "b0", "c"}},
		"after to":             {storage.Query{After: "b", To: "c0"}, []string{"b0", "c"}},
		"after before from":    {storage.Query{From: "c", After: "a"}, []string{"c", "d"}},
		"after beyond from":    {storage.Query{From: "a", After: "c"}, []string{"d"}},
		"nothing":              {storage.Query{From: "e"}, nil},
		"nothing between":      {storage.Query{From: "bb", To: "bc"}, nil},
		"the wrong way around": {storage.Query{From: "d", To: "a"}, nil},
	}
	for name, test := range tests {
		page := queryPage(t, table, test.q)
		wantKeys(t, name, page.Rows, test.want...)
		if page.More {
			t.Errorf("%s: More = true after the last row, want false", name)
		}
	}
}

func rangePages(t *testing.T, table storage.Table) {
	var keys []string
	for i := range 23 {
		keys = append(keys, fmt.Sprintf("m_%03d", i))
	}

	insertRows(t, table, append(keys, "n")...)

	for _, limit := range []int{1, 5, 22, 23, 24, 1000} {
		var got []string
		q := storage.Query{From: "m_", To: "m`", Limit: limit}
		for more := true; more; {
			page := queryPage(t, table, q)
			if len(page.Rows) > limit || (page.More && len(page.Rows) == 0) ||
				len(got) > len(keys) {
				t.Fatalf("limit %d: a page of %d rows, more %t, want no more rows than the limit, and some if more",
					limit, len(page.Rows), page.More)
			}

			got = append(got, keysOf(page.Rows)...)
			if more = page.More; more {
				q.After = got[len(got)-1]
			}
		}

		if !slices.Equal(got, keys) {
			t.Errorf("limit %d: %q, want %v", limit, got, keys)
		}
	}
}

func rangeDefaultLimit(t *testing.T, table storage.Table) {
	var keys []string
	for i := range 1100 {
		keys = append(keys, fmt.Sprintf("m_%04d", i))
	}

	insertRows(t, table, keys...)
	page := queryPage(t, table, storage.Query{})
	if len(page.Rows) > 1000 || !page.More {
		t.Fatalf("a page of %d rows, more %t, want at most 1000 Rows and More true",
			len(page.Rows), page.More)
	}

	got := keysOf(page.Rows)
	for page.More && len(got) < len(keys) {
		page = queryPage(t, table, storage.Query{After: got[len(got)-1]})
		got = append(got, keysOf(page.Rows)...)
	}

	if !slices.Equal(got, keys) || page.More {
		t.Errorf("%d rows, want %d in order and no more", len(got), len(keys))
	}
}

func rangeColumns(t *testing.T, table storage.Table) {
	tag := putRow(t, table, insertOp("k",
		map[string]any{"A": "a", "B": int64(2), "C": []byte("c")}))
	putRow(t, table, insertOp("l", map[string]any{"C": true}))
	tests := map[string]struct {
		columns []string
		want    map[string]any
	}{
		"all":    {nil, map[string]any{"A": "a", "B": int64(2), "C": []byte("c")}},
		"two":    {[]string{"A", "B"}, map[string]any{"A": "a", "B": int64(2)}},
		"absent": {[]string{"C", "D"}, map[string]any{"C": []byte("c")}},
		"none":   {[]string{}, map[string]any{}},
	}
	for name, test := range tests {
		page := queryPage(t, table, storage.Query{Columns: test.columns})
		wantKeys(t, name, page.Rows, "k", "l")
		if r := page.Rows[0]; r.ETag != tag || r.Partition != "p" ||
			!sameValues(r.Values, test.want) {
			t.Errorf("%s: %+v, want %v", name, r, test.want)
		}
	}

	page := queryPage(t, table, storage.Query{Columns: []string{"A"}})
	if got := page.Rows[1].Values; got == nil || len(got) != 0 {
		t.Errorf("a row without the column: %#v, want an empty map", got)
	}
}

func rangeOtherPartition(t *testing.T, table storage.Table) {
	for _, partition := range []string{"1.1", "1.10", "1.2"} {
		_, err := table.Transact(t.Context(), partition,
			[]storage.Op{insertOp("of "+partition, nil)})
		requireNoError(t, err)
	}

	page, err := table.Range(t.Context(), storage.Query{Partition: "1.1"})
	requireNoError(t, err)
	wantKeys(t, "1.1", page.Rows, "of 1.1")
	page, err = table.Range(t.Context(), storage.Query{Partition: "1"})
	requireNoError(t, err)
	wantKeys(t, "none", page.Rows)
	if page.More {
		t.Error("More = true of an empty partition, want false")
	}
}
