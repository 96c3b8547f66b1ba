package rows

import (
	"context"
	"iter"

	"weir/internal/storage"
)

// Pages yields the pages of a query, up to the last one. If a read fails, Pages yields the error
// and ends.
func Pages(ctx context.Context, table storage.Table,
	q storage.Query) iter.Seq2[storage.Page, error] {
	return func(yield func(storage.Page, error) bool) {
		for {
			page, err := table.Range(ctx, q)
			if !yield(page, err) || err != nil || !page.More {
				return
			}
			// a page with More has at least one row
			q.From, q.After = "", page.Rows[len(page.Rows)-1].Key
		}
	}
}

// Scan yields the rows of a query, up to the last one. If a read fails, Scan yields the error and
// ends.
func Scan(ctx context.Context, table storage.Table, q storage.Query) iter.Seq2[storage.Row, error] {
	return func(yield func(storage.Row, error) bool) {
		for page, err := range Pages(ctx, table, q) {
			if err != nil {
				yield(storage.Row{}, err)
				return
			}

			for _, r := range page.Rows {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}

// ReadPages returns the rows of a query's first pages, at most limit pages. It reports whether
// there are more rows.
func ReadPages(ctx context.Context, table storage.Table, q storage.Query,
	limit int) (found []storage.Row, more bool, err error) {
	read := 0
	for page, err := range Pages(ctx, table, q) {
		if err != nil {
			return nil, false, err
		}

		found, more = append(found, page.Rows...), page.More
		if read++; read == limit {
			break
		}
	}

	return found, more, nil
}

// ReadFirst returns the first rows of a query, at most limit. It reads on after a page that is not
// full, because storage is allowed to return such a page although more rows follow.
func ReadFirst(ctx context.Context, table storage.Table, q storage.Query,
	limit int) (found []storage.Row, err error) {
	for more := true; more && len(found) < limit; {
		q.Limit = limit - len(found)
		page, err := table.Range(ctx, q)
		if err != nil {
			return nil, err
		}

		if found, more = append(found, page.Rows...), page.More; more {
			q.From, q.After = "", found[len(found)-1].Key
		}
	}

	return found, nil
}
