package lane

import (
	"context"
	"maps"
	"slices"

	"weir/internal/clock"
	"weir/internal/storage"
	"weir/internal/weir"
)

// latest copies the versions that were delivered last. All of them are written each time,
// and head with them: a transaction that is late finds another head.
func (r *EpochCopy) latest(ctx context.Context, lane int) error {
	q := storage.Query{Partition: r.From.partition(lane), From: prefixLatest, To: after(prefixLatest)}
	for more := true; more; {
		page, err := r.From.Table.Range(ctx, q)
		if err != nil {
			return err
		}
		byLane := map[int][]storage.Op{}
		for _, row := range page.Rows {
			v := values{maps.Clone(row.Values)}
			if v.string("Origin") == "" {
				v.m["Origin"] = weir.ID{Epoch: r.From.Epoch, Lane: lane, Seq: v.int("Seq"), Nonce: v.string("Nonce")}.String()
			}
			to := Of(v.string("Key"), r.To.Lanes)
			byLane[to] = append(byLane[to], storage.Op{Kind: storage.Upsert, Key: row.Key, Values: v.m})
			q.From, q.After = "", row.Key
		}
		targets := slices.Sorted(maps.Keys(byLane))
		err = ForEach(len(targets), func(i int) error {
			for chunk := range slices.Chunk(byLane[targets[i]], storage.MaxOps-1) {
				if err := r.write(ctx, targets[i], chunk); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		more = page.More
	}
	return nil
}

// write writes rows that say the same however often they are written.
func (r *EpochCopy) write(ctx context.Context, lane int, rows []storage.Op) error {
	for {
		c, err := r.To.ReadControl(ctx, lane)
		if err == nil {
			ops := append([]storage.Op{headOp(c.Head, map[string]any{"Next": c.Head.Next})}, rows...)
			_, err = r.To.Table.Transact(ctx, r.To.partition(lane), ops)
		}
		if err == nil || !uncertain(err) || ctx.Err() != nil {
			return err
		}
		clock.Sleep(ctx, r.To.jitter(conflictPause))
	}
}
