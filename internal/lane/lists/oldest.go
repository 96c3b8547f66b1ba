package lists

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// OldestWaitingSince reads at most oldestPage rows of the log, and at most oldestPage rows of held
// messages.
const oldestPage = 100

// OldestWaitingSince returns the time from which the oldest waiting message can be sent: the latest
// of its acceptance, its due time and its last request for a replay. It returns zero if no message
// waits, or if only scheduled messages wait. It reads only the first rows of the log from the
// cursor on, and the first held messages, so it can miss the oldest message.
func (l Reader) OldestWaitingSince(ctx context.Context, number int,
	c lane.Control) (time.Time, error) {
	oldest, err := l.oldestOfLog(ctx, number, c)
	if err != nil || c.Tail.NextDueAt.IsZero() {
		return oldest, err
	}

	held, err := l.oldestHeld(ctx, number)
	if err != nil || held.IsZero() || !oldest.IsZero() && oldest.Before(held) {
		return oldest, err
	}

	return held, nil
}

func (l Reader) oldestOfLog(ctx context.Context, number int, c lane.Control) (time.Time, error) {
	if c.Head.Next <= c.Tail.Cursor {
		return time.Time{}, nil
	}

	entries, err := l.Store.ScanLog(ctx, number, c.Tail.Cursor, oldestPage)
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

// oldestHeld returns the time from which the oldest held message waits. A replayed message waits
// from its replay on, so its sequence number does not show its age. So oldestHeld compares two
// messages: the replayed message with the lowest sequence number, and the first message that was
// never replayed.
func (l Reader) oldestHeld(ctx context.Context, number int) (time.Time, error) {
	page, err := l.Store.Table.Range(ctx,
		storage.Query{Partition: l.Store.Partition(number), From: rows.HeldPrefix,
			To: rows.PrefixEnd(rows.HeldPrefix), Limit: oldestPage,
			Columns: rows.Names(rows.Seq, rows.WasReplayed)})
	if err != nil {
		return time.Time{}, err
	}

	first := map[bool]int64{} // lowest sequence number; the map's key is true for replayed messages
	for _, r := range page.Rows {
		v := r.Values
		if seq, again := rows.Seq.Of(v), rows.WasReplayed.Of(v); first[again] == 0 ||
			seq < first[again] {
			first[again] = seq
		}
	}

	var oldest time.Time
	for _, seq := range first {
		e, err := l.Store.ReadMessage(ctx, number, seq)
		if err != nil && !storage.Is(err, storage.NotFound) {
			return time.Time{}, err
		}

		if err == nil && (oldest.IsZero() || e.WaitingSince().Before(oldest)) {
			oldest = e.WaitingSince()
		}
	}

	return oldest, nil
}
