package overview_test

import (
	"context"
	"testing"

	"weir/internal/storage"
)

// countingTable counts the requests to it, and the rows it returns.
type countingTable struct {
	storage.Table
	asked, rows int
}

func (c *countingTable) Get(ctx context.Context, partition, key string) (storage.Row, error) {
	c.asked++
	c.rows++
	return c.Table.Get(ctx, partition, key)
}

func (c *countingTable) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	page, err := c.Table.Range(ctx, q)
	c.asked++
	c.rows += len(page.Rows)
	return page, err
}

// A state without its forecast costs two reads in a lane of any length, because upstreams poll during
// a backlog.
func TestStatus_CostsTwoReadsInABacklog(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		for range 1500 {
			w.appendMessage("a")
		}
		id := w.appendMessage("a")
		table := &countingTable{Table: w.store.Table}
		w.store.Table = table
		st, err := w.store.Status(t.Context(), id)
		if err != nil || table.asked > 2 || table.rows > 2 {
			t.Errorf("a state took %d reads of %d rows, want 2 (%v)", table.asked, table.rows, err)
		}
		*table = countingTable{Table: table.Table}
		if _, err := w.all.Forecast(t.Context(), st); err != nil || table.asked > 5 || table.rows > 1010 {
			t.Errorf("an outlook took %d reads of %d rows, want 5 of 1,010 at most (%v)", table.asked, table.rows, err)
		}
	})
}
