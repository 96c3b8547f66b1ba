package lists

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// DueSpan selects due times of a lane, which sort by time and then by sequence number.
type DueSpan struct {
	From  time.Time     // at or after
	To    time.Time     // before; zero = no end
	After *lane.DueTime // behind this one; nil = none
}

// ReadDueTimes reads up to limit due times of a lane in order. Fewer mean that there are no more.
func (l Reader) ReadDueTimes(ctx context.Context, number int, span DueSpan, limit int) ([]lane.DueTime, error) {
	q := storage.Query{Partition: l.Store.Partition(number), From: rows.DuePrefix, To: rows.PrefixEnd(rows.DuePrefix)}
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
	dues := make([]lane.DueTime, len(found))
	for i, r := range found {
		if dues[i], err = lane.ParseDueKey(r.Key); err != nil {
			return nil, err
		}
	}
	return dues, nil
}
