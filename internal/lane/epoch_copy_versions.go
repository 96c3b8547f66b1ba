package lane

import (
	"context"
	"maps"
	"slices"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// copyVersions copies the versions that were delivered last. Each call writes all of them again, together with
// head: a late transaction finds a newer head and does nothing.
func (r *EpochCopy) copyVersions(ctx context.Context, lane int) error {
	q := rows.WithPrefix(r.From.partitionOf(lane), rows.VersionPrefix, nil)
	for page, err := range rows.Pages(ctx, r.From.Table, q) {
		if err != nil {
			return err
		}
		byLane := map[int][]storage.Op{}
		for _, row := range page.Rows {
			v := maps.Clone(row.Values)
			if rows.Origin.Of(v) == "" {
				rows.Put(v, rows.Origin.Is(weir.ID{Epoch: r.From.Epoch, Lane: lane, Seq: rows.Seq.Of(v),
					Nonce: rows.Nonce.Of(v)}.String()))
			}
			to := Of(rows.Key.Of(v), r.To.Lanes)
			byLane[to] = append(byLane[to], storage.Op{Kind: storage.Upsert, Key: row.Key, Values: v})
		}
		targets := slices.Sorted(maps.Keys(byLane))
		err = ForEach(len(targets), func(i int) error {
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

// writeVersions writes rows. Repeating it does no harm, because the rows are always the same.
func (r *EpochCopy) writeVersions(ctx context.Context, lane int, versions []storage.Op) error {
	return rows.Update(ctx, func() (bool, error) {
		c, err := r.To.ReadControl(ctx, lane)
		if err == nil {
			ops := append([]storage.Op{headOp(c.Head, rows.Values(rows.NextSeq.Is(c.Head.Next)))}, versions...)
			_, err = r.To.Table.Transact(ctx, r.To.partitionOf(lane), ops)
		}
		return !isUncertain(err), err
	}, r.To.pauseAfterConflict)
}
