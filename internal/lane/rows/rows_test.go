package rows_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/storage/memory"
)

func TestSparse_LeavesOutZeroValues(t *testing.T) {
	t.Parallel()
	got := rows.Sparse(rows.Seq.Is(0), rows.Nonce.Is(""), rows.IsSealed.Is(false),
		rows.DueAt.Is(time.Time{}), rows.Fence.Is(3))
	if want := (map[string]any{"Fence": int64(3)}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestErasableTime_ErasesATime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	v := rows.Values(rows.FinishedAt.Is(at))
	if got := rows.FinishedAt.Of(v); !got.Equal(at) {
		t.Errorf("got %v, want %v", got, at)
	}

	rows.Put(v, rows.FinishedAt.Is(time.Time{}))
	if !rows.Has(v, rows.FinishedAt) {
		t.Error("got no value, want one: a merge would keep the time that storage has")
	}

	if got := rows.FinishedAt.Of(v); !got.IsZero() {
		t.Errorf("got %v, want the zero time", got)
	}
}

// cutTable is a table that returns pages of one row. Storage is allowed to return such short pages.
type cutTable struct{ storage.Table }

func (c cutTable) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	q.Limit = 0
	page, err := c.Table.Range(ctx, q)
	page.More = len(page.Rows) > 1
	page.Rows = page.Rows[:min(1, len(page.Rows))]
	return page, err
}

func TestScan_ReadsAllPages(t *testing.T) {
	t.Parallel()
	table := cutTable{memory.New(time.Now).Table()}
	var ops []storage.Op
	for seq := range int64(5) {
		ops = append(ops, storage.Op{Kind: storage.Insert, Key: rows.MessageKey(seq + 1),
			Values: rows.Values(rows.Seq.Is(seq + 1))})
	}

	if _, err := table.Transact(t.Context(), "1.0", ops); err != nil {
		t.Fatal(err)
	}

	q := rows.WithPrefix("1.0", rows.MessagePrefix, rows.Names(rows.Seq))
	var got []int64
	for r, err := range rows.Scan(t.Context(), table, q) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rows.Seq.Of(r.Values))
	}

	if len(got) != 5 || got[4] != 5 {
		t.Errorf("Scan: got %v, want 1 to 5", got)
	}

	if first, err := rows.ReadFirst(t.Context(), table, q, 3); err != nil || len(first) != 3 {
		t.Errorf("ReadFirst: got %d rows, %v, want 3", len(first), err)
	}

	found, more, err := rows.ReadPages(t.Context(), table, q, 2)
	if err != nil || len(found) != 2 || !more {
		t.Errorf("ReadPages: got %d rows, more %v, %v, want 2 and more", len(found), more, err)
	}
}

func TestUpdate_RepeatsUntilDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("lost")
		second := func(error) time.Duration { return time.Second }
		attempts, began := 0, time.Now()
		err := rows.Update(t.Context(), func() (bool, error) {
			attempts++
			if attempts == 3 {
				return true, nil
			}
			return false, lost
		}, second)
		if err != nil || attempts != 3 || time.Since(began) != 2*time.Second {
			t.Errorf("got %v after %d attempts in %v, want success after 3 in 2s", err, attempts,
				time.Since(began))
		}

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err = rows.Update(ctx, func() (bool, error) { return false, lost }, second)
		if !errors.Is(err, lost) || !errors.Is(err, rows.ErrUndone) {
			t.Errorf("got %v, want the last error and ErrUndone", err)
		}

		refused := errors.New("refused")
		err = rows.Update(ctx, func() (bool, error) { return true, refused }, second)
		if !errors.Is(err, refused) || errors.Is(err, rows.ErrUndone) {
			t.Errorf("got %v, want the refusal alone", err)
		}
	})
}
