package epochend

import (
	"context"
	"maps"
	"slices"

	"weir/internal/lane"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// copyKeyRows copies the rows whose row key begins with prefix: the latest delivered versions, or
// the remembered ids. A repeated call writes all of these rows again. Each transaction also writes
// head of the new lane, and fails if head has changed since it was read. So a transaction that
// reaches storage late, after it was repeated, changes nothing.
func (r *Copy) copyKeyRows(ctx context.Context, number int, prefix string) error {
	q := rows.WithPrefix(r.From.Partition(number), prefix, nil)
	for page, err := range rows.Pages(ctx, r.From.Table, q) {
		if err != nil {
			return err
		}

		byLane := map[int][]storage.Op{}
		for _, row := range page.Rows {
			v := maps.Clone(row.Values)
			if prefix == rows.VersionPrefix && rows.Origin.Of(v) == "" {
				rows.Put(v, rows.Origin.Is(weir.ID{Epoch: r.From.Epoch, Lane: number, Seq: rows.Seq.Of(v),
					Nonce: rows.Nonce.Of(v)}.String()))
			}

			to := lane.OfRow(v, r.To.Present())
			byLane[to] = append(byLane[to],
				storage.Op{Kind: storage.Upsert, Key: row.Key, Values: v})
		}

		targets := slices.Sorted(maps.Keys(byLane))
		err = lane.ForEach(len(targets), func(i int) error {
			for chunk := range slices.Chunk(byLane[targets[i]], storage.MaxOps-1) {
				if err := r.writeVersions(ctx, targets[i], chunk); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// writeVersions writes rows in one transaction. The transaction can be repeated, because it always
// writes the same rows.
func (r *Copy) writeVersions(ctx context.Context, number int, versions []storage.Op) error {
	return rows.Update(ctx, func() (bool, error) {
		c, err := r.To.ReadControl(ctx, number)
		if err == nil {
			ops := append([]storage.Op{c.Head.UpdateOp(rows.NextSeq.Is(c.Head.Next))}, versions...)
			_, err = r.To.Table.Transact(ctx, r.To.Partition(number), ops)
		}
		return !rows.IsUncertain(err), err
	}, r.To.PauseAfterConflict)
}
