package recur

import (
	"context"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// deletions is the table partition with a row for each call that removed a schedule. The row is
// written before the schedule is removed. So a repeat of the call, after the process has ended,
// knows that the schedule was there.
const deletions = "schedule-deletions"

// deletionAge is the time for which the rows are kept. The host repeats a call within about two
// seconds.
const deletionAge = time.Hour

func deletionKey(ctx context.Context, name string) string { return weir.CallOf(ctx) + "_" + name }

// recordDeletion stores that the call removes the schedule, and removes old rows. Without the id of
// a call, it does nothing.
func (s *Store) recordDeletion(ctx context.Context, removed Schedule, now time.Time) error {
	if weir.CallOf(ctx) == "" {
		return nil
	}

	ops := []storage.Op{{Kind: storage.Upsert, Key: deletionKey(ctx, removed.Name),
		Values: map[string]any{"At": columnTime(now), "CreationID": removed.creationID}}}
	if _, err := s.Table.Transact(ctx, deletions, ops); err != nil {
		return apiError("schedule: delete", err)
	}

	s.removeOldDeletions(ctx, now, deletionKey(ctx, removed.Name))

	return nil
}

// removeOldDeletions removes rows that no repeat can need: of the rows behind the call's own, and
// of the first ones. The ids of calls are random, so each row gets its turn. If it fails, the next
// deletion goes on.
func (s *Store) removeOldDeletions(ctx context.Context, now time.Time, own string) {
	for _, after := range []string{own, ""} {
		page, err := s.Table.Range(ctx,
			storage.Query{Partition: deletions, After: after, Limit: storage.MaxOps})
		if err != nil {
			return
		}

		var ops []storage.Op
		for _, row := range page.Rows {
			if now.Sub(rowValues(row.Values).time("At")) > deletionAge {
				ops = append(ops, storage.Op{Kind: storage.Delete, Key: row.Key, IfMatch: row.ETag})
			}
		}

		if len(ops) > 0 {
			_, _ = s.Table.Transact(ctx, deletions, ops)
		}
	}
}

// findDeletion reports whether the call that the context names has begun to remove the schedule. It
// returns the creation id of that schedule: another schedule can have the name meanwhile.
func (s *Store) findDeletion(ctx context.Context, name string) (creationID string, isRepeat bool,
	err error) {
	if weir.CallOf(ctx) == "" {
		return "", false, nil
	}

	row, err := s.Table.Get(ctx, deletions, deletionKey(ctx, name))
	if storage.Is(err, storage.NotFound) {
		return "", false, nil
	}
	if err != nil {
		return "", false, apiError("schedule: delete", err)
	}

	return rowValues(row.Values).string("CreationID"), true, nil
}
