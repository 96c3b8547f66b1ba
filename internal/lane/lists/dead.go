package lists

import (
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// DeadRow is a row in a lane's list of dead messages.
type DeadRow struct {
	Seq       int64
	OrderPos  string // position in its key's order
	Key       string
	Contract  string
	DiedAt    time.Time
	Reason    string // reason of the last attempt
	CMSStatus int    // status in the last attempt; 0 = no answer
}

// ReadDead reads up to limit dead messages with sequence numbers above the argument "behind", in
// ascending order. It reports whether the lane has further dead messages after these.
func (l Reader) ReadDead(ctx context.Context, number int, behind int64,
	limit int) (found []DeadRow, more bool, err error) {
	page, err := l.Store.Table.Range(ctx, storage.Query{Partition: l.Store.Partition(number),
		After: rows.DeadKey(behind),
		To:    rows.PrefixEnd(rows.DeadPrefix), Limit: limit})
	if err != nil {
		return nil, false, err
	}

	for _, r := range page.Rows {
		if d, isWhole := l.deadFrom(number, r); isWhole {
			found = append(found, d)
		}
	}

	return found, page.More, nil
}

// deadFrom returns false if the row is damaged.
func (l Reader) deadFrom(number int, r storage.Row) (DeadRow, bool) {
	seq, isWhole := l.Store.SeqOf(number, rows.DeadPrefix, r)
	v := r.Values
	pos := rows.OrderPos.Of(v)
	if pos == "" {
		pos = rows.SeqPos(seq)
	}

	return DeadRow{Seq: seq, OrderPos: pos, Key: rows.Key.Of(v),
			Contract: l.Store.Contracts.PresentName(rows.Contract.Of(v)),
			DiedAt:   rows.DiedAt.Of(v), Reason: rows.Reason.Of(v),
			CMSStatus: int(rows.CMSStatus.Of(v))},
		isWhole
}
