package lists

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// DueSpan selects due times of a lane. The due times are sorted by time and then by sequence
// number.
type DueSpan struct {
	From  time.Time     // only times at or after From
	To    time.Time     // only times before To; zero = no limit
	After *lane.DueTime // only due times that follow After; nil = no limit
}

// ReadDueTimes reads up to limit due times of a lane in the order of DueSpan. If it returns fewer
// than limit, the span has no further due times.
func (l Reader) ReadDueTimes(ctx context.Context, number int, span DueSpan,
	limit int) ([]lane.DueTime, error) {
	q := storage.Query{Partition: l.Store.Partition(number), From: rows.DuePrefix,
		To: rows.PrefixEnd(rows.DuePrefix)}
	if !span.From.IsZero() {
		q.From = rows.DuePrefix + rows.TimePos(span.From)
	}

	if !span.To.IsZero() {
		q.To = rows.DuePrefix + rows.TimePos(span.To)
	}

	if span.After != nil {
		q.After = rows.DuePrefix + span.After.String()
	}

	found, err := rows.ReadFirst(ctx, l.Store.Table, q, limit)
	if err != nil {
		return nil, err
	}

	return l.Store.DueTimesOf(number, found), nil
}
