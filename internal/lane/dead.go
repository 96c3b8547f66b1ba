package lane

import (
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// DeadRow is a row in a lane's list of dead messages.
type DeadRow struct {
	Seq       int64
	OrderPos  string // in the order of its key
	Key       string
	Contract  string
	DiedAt    time.Time
	Reason    string
	CMSStatus int
}

// deadValues returns the columns of the row of a message that died.
func deadValues(e *Entry, at time.Time) map[string]any {
	v := rows.Values(rows.Key.Is(e.Message.Key), rows.Contract.Is(e.Message.Contract), rows.DiedAt.Is(at),
		rows.Reason.Is(e.status.LastError), rows.CMSStatus.Is(int64(e.status.CMSStatus)))
	if e.releasedPos != "" {
		rows.Put(v, rows.OrderPos.Is(e.releasedPos))
	}
	return v
}

// ReadDead reads up to limit dead messages behind a sequence number, in the order of the log. It reports
// whether there are more.
func (s *Store) ReadDead(ctx context.Context, lane int, behind int64, limit int) (found []DeadRow, more bool,
	err error) {
	page, err := s.Table.Range(ctx, storage.Query{Partition: s.partitionOf(lane), After: rows.DeadKey(behind),
		To: rows.PrefixEnd(rows.DeadPrefix), Limit: limit})
	if err != nil {
		return nil, false, err
	}
	for _, r := range page.Rows {
		d, err := deadFrom(r)
		if err != nil {
			return nil, false, err
		}
		found = append(found, d)
	}
	return found, page.More, nil
}

// deadKeysPages limits the pages that ReadDeadKeys reads.
const deadKeysPages = 10

// ReadDeadKeys returns the hashes of the keys that have dead messages in a lane. If there are too many to
// read, all is true.
func (s *Store) ReadDeadKeys(ctx context.Context, lane int) (keys map[string]bool, all bool, err error) {
	q := rows.WithPrefix(s.partitionOf(lane), rows.DeadPrefix, rows.Names(rows.Key))
	found, more, err := rows.ReadPages(ctx, s.Table, q, deadKeysPages)
	if err != nil || more {
		return nil, more, err
	}
	keys = map[string]bool{}
	for _, r := range found {
		keys[KeyHash(rows.Key.Of(r.Values))] = true
	}
	return keys, false, nil
}

func deadFrom(r storage.Row) (DeadRow, error) {
	seq, err := rows.ParseSeq(r.Key[len(rows.DeadPrefix):])
	v := r.Values
	place := rows.OrderPos.Of(v)
	if place == "" {
		place = rows.SeqPos(seq)
	}
	return DeadRow{Seq: seq, OrderPos: place, Key: rows.Key.Of(v), Contract: rows.Contract.Of(v),
		DiedAt: rows.DiedAt.Of(v), Reason: rows.Reason.Of(v), CMSStatus: int(rows.CMSStatus.Of(v))}, err
}
