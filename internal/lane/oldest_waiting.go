package lane

import (
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// oldestPage limits the rows of the log and of held messages that OldestWaitingSince reads.
const oldestPage = 100

// OldestWaitingSince returns when the oldest waiting message became deliverable: when it was accepted, or
// fell due. It returns zero if only scheduled messages wait. It reads the first messages of the log and the
// first held ones, in three queries at most.
func (s *Store) OldestWaitingSince(ctx context.Context, lane int, c Control) (time.Time, error) {
	oldest, err := s.oldestOfLog(ctx, lane, c)
	if err != nil || c.Tail.NextDueAt.IsZero() {
		return oldest, err
	}
	held, err := s.oldestHeld(ctx, lane)
	if err != nil || held.IsZero() || !oldest.IsZero() && oldest.Before(held) {
		return oldest, err
	}
	return held, nil
}

func (s *Store) oldestOfLog(ctx context.Context, lane int, c Control) (time.Time, error) {
	if c.Head.Next <= c.Tail.Cursor {
		return time.Time{}, nil
	}
	entries, err := s.ScanLog(ctx, lane, c.Tail.Cursor, oldestPage)
	if err != nil {
		return time.Time{}, err
	}
	for _, e := range entries {
		if !e.Stage.Final() && !e.IsHeld && e.Stage != weir.Scheduled {
			return e.WaitingSince(), nil
		}
	}
	return time.Time{}, nil
}

// oldestHeld compares the message that was filed first with the replayed message that was filed first: a
// replayed message may have waited for less time than a later one.
func (s *Store) oldestHeld(ctx context.Context, lane int) (time.Time, error) {
	page, err := s.Table.Range(ctx, storage.Query{Partition: s.partitionOf(lane), From: rows.HeldPrefix,
		To: rows.PrefixEnd(rows.HeldPrefix), Limit: oldestPage, Columns: rows.Names(rows.Seq, rows.WasReplayed)})
	if err != nil {
		return time.Time{}, err
	}
	first := map[bool]int64{} // by whether it was replayed
	for _, r := range page.Rows {
		v := r.Values
		if seq, again := rows.Seq.Of(v), rows.WasReplayed.Of(v); first[again] == 0 || seq < first[again] {
			first[again] = seq
		}
	}
	var oldest time.Time
	for _, seq := range first {
		e, err := s.ReadMessage(ctx, lane, seq)
		if err != nil && !storage.Is(err, storage.NotFound) {
			return time.Time{}, err
		}
		if err == nil && (oldest.IsZero() || e.WaitingSince().Before(oldest)) {
			oldest = e.WaitingSince()
		}
	}
	return oldest, nil
}
