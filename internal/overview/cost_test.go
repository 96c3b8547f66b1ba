package overview_test

import (
	"context"
	"testing"

	"weir/internal/storage"
)

// countingTable counts the reads and the returned rows.
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

// Upstreams poll the status of messages during a backlog. So the cost of Status must not grow with
// the number of messages in the lane.
func TestStatus_CostsTwoReadsInABacklog(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		for range 1500 {
			w.appendMessage("a")
		}

		id := w.appendMessage("a")
		table := &countingTable{Table: w.store.Table}
		w.store.Table = table
		st, err := w.store.Messages().Status(t.Context(), id)
		if err != nil || table.asked > 2 || table.rows > 2 {
			t.Errorf("Status made %d reads of %d rows, %v, want at most 2 reads of 2 rows and no error", table.asked,
				table.rows, err)
		}

		*table = countingTable{Table: table.Table}
		if _, err := w.all.Forecast(t.Context(), st); err != nil || table.asked > 5 ||
			table.rows > 1010 {
			t.Errorf("Forecast made %d reads of %d rows, %v, want at most 5 reads of 1,010 rows and no error",
				table.asked, table.rows, err)
		}
	})
}
