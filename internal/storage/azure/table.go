package azure

import (
	"context"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"weir/internal/storage"
	"weir/internal/storage/timelimit"
)

const maxRows = 1000 // Azure's limit of rows in one answer

// Table implements storage.Table on a table of the account.
type Table struct {
	client *aztables.Client
	name   string
}

var _ storage.Table = (*Table)(nil)

// Get implements storage.Table.
func (t *Table) Get(ctx context.Context, partition, key string) (row storage.Row, err error) {
	err = doRead(ctx, "table get", func(ctx context.Context) error {
		var a answer
		r, err := t.client.GetEntity(withAnswer(ctx, &a), partition, key,
			&aztables.GetEntityOptions{Format: new(aztables.MetadataFormatFull)})
		if err != nil {
			return err
		}

		if row, err = a.decodeRow(); err == nil && r.ETag != "" {
			row.ETag = storage.ETag(r.ETag)
		}

		return err
	})

	return row, err
}

// Range implements storage.Table. If a search takes long, Azure can answer with a continuation
// token and without rows. Range then requests the next answer, because its caller would regard a
// page without rows as the last page.
func (t *Table) Range(ctx context.Context, q storage.Query) (page storage.Page, err error) {
	err = doRead(ctx, "table query", func(ctx context.Context) error {
		pager := t.client.NewListEntitiesPager(listOptions(q))
		for {
			var a answer
			_, err := pager.NextPage(withAnswer(ctx, &a))
			if err != nil {
				return err
			}

			timelimit.Moved(ctx)
			page.More = pager.More()
			if page.Rows, err = a.decodeRows(); err != nil || len(page.Rows) > 0 || !page.More {
				return err
			}
		}
	})
	if err != nil {
		return storage.Page{}, err
	}

	return page, nil
}

// listOptions requests full metadata: by Azure's documentation, only full metadata has the ETags of
// the rows.
func listOptions(q storage.Query) *aztables.ListEntitiesOptions {
	limit := q.Limit
	if limit <= 0 || limit > maxRows {
		limit = maxRows
	}

	o := &aztables.ListEntitiesOptions{
		Filter: new(queryFilter(q)), Top: new(int32(limit)),
		Format: new(aztables.MetadataFormatFull),
	}

	if q.Columns != nil {
		columns := append(slices.Clone(q.Columns), "PartitionKey", "RowKey")
		o.Select = new(strings.Join(columns, ","))
	}

	return o
}

func queryFilter(q storage.Query) string {
	f := "PartitionKey eq " + quoteOData(q.Partition)
	if q.From != "" {
		f += " and RowKey ge " + quoteOData(q.From)
	}

	if q.After != "" {
		f += " and RowKey gt " + quoteOData(q.After)
	}

	if q.To != "" {
		f += " and RowKey lt " + quoteOData(q.To)
	}

	return f
}

// Partitions implements storage.Partitions. Each partition costs one request: the table is sorted
// by partition.
func (a *Account) Partitions(ctx context.Context, visit func(name string) error) error {
	for last := ""; ; {
		name, err := a.table.nextPartition(ctx, last)
		if err != nil || name == "" {
			return err
		}

		if err := visit(name); err != nil {
			return err
		}

		last = name
	}
}

// nextPartition returns the first partition after a name that has a row; "" = there is none.
func (t *Table) nextPartition(ctx context.Context, after string) (name string, err error) {
	ctx, cancel := timelimit.ForQuery(ctx)
	defer cancel()

	o := &aztables.ListEntitiesOptions{Top: new(int32(1)), Format: new(aztables.MetadataFormatFull),
		Select: new("PartitionKey,RowKey")}
	if after != "" {
		o.Filter = new("PartitionKey gt " + quoteOData(after))
	}

	err = doRead(ctx, "table partitions", func(ctx context.Context) error {
		pager := t.client.NewListEntitiesPager(o)
		for {
			var a answer
			if _, err := pager.NextPage(withAnswer(ctx, &a)); err != nil {
				return err
			}

			timelimit.Moved(ctx)
			found, err := a.decodeRows()
			if err != nil || len(found) > 0 || !pager.More() {
				if len(found) > 0 {
					name = found[0].Partition
				}
				return err
			}
		}
	})

	return name, err
}

func quoteOData(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// defectError wraps an error that a repeat of the call would not cure, for example an answer that
// cannot be decoded.
func defectError(op string, err error) error {
	if err == nil {
		return nil
	}
	return &storage.Error{Op: op, Kind: storage.Other, Index: -1, Err: err}
}
