package lane

import (
	"context"
	"time"

	"weir/internal/storage"
)

// DeadRow is a line of a lane's list of dead messages.
type DeadRow struct {
	Seq       int64
	OrderPos  string // in its key's order
	Key       string
	Contract  string
	DiedAt    time.Time
	Reason    string
	CMSStatus int
}

// deadValues are those of the line of a message that died.
func deadValues(e *Entry, at time.Time) map[string]any {
	v := map[string]any{"Key": e.Message.Key, "Contract": e.Message.Contract, "DiedAt": at, "Reason": e.status.LastError, "CMSStatus": int64(e.status.CMSStatus)}
	if e.placed != "" {
		v["Place"] = e.placed
	}
	return v
}

// ReadDead reads the dead messages of a lane behind a place in the log, in the order of the
// log, up to limit, and says whether there are more.
func (s *Store) ReadDead(ctx context.Context, lane int, behind int64, limit int) (rows []DeadRow, more bool, err error) {
	page, err := s.Table.Range(ctx, storage.Query{Partition: s.partition(lane), After: deadKey(behind), To: after(prefixDead), Limit: limit})
	if err != nil {
		return nil, false, err
	}
	for _, r := range page.Rows {
		d, err := deadFrom(r)
		if err != nil {
			return nil, false, err
		}
		rows = append(rows, d)
	}
	return rows, page.More, nil
}

// deadKeysPages is how far DeadKeys reads.
const deadKeysPages = 10

// ReadDeadKeys reads the hashes of the keys that have dead messages in a lane; all says that
// there are too many of them to be known.
func (s *Store) ReadDeadKeys(ctx context.Context, lane int) (keys map[string]bool, all bool, err error) {
	keys = map[string]bool{}
	q := storage.Query{Partition: s.partition(lane), From: prefixDead, To: after(prefixDead), Columns: []string{"Key"}}
	for range deadKeysPages {
		page, err := s.Table.Range(ctx, q)
		if err != nil {
			return nil, false, err
		}
		for _, r := range page.Rows {
			keys[KeyHash(values{r.Values}.string("Key"))] = true
			q.From, q.After = "", r.Key
		}
		if !page.More {
			return keys, false, nil
		}
	}
	return nil, true, nil
}

func deadFrom(r storage.Row) (DeadRow, error) {
	seq, err := parseSeq(r.Key[len(prefixDead):])
	v := values{r.Values}
	place := v.string("Place")
	if place == "" {
		place = OrderPos(seq)
	}
	return DeadRow{Seq: seq, OrderPos: place, Key: v.string("Key"), Contract: v.string("Contract"), DiedAt: v.time("DiedAt"), Reason: v.string("Reason"), CMSStatus: int(v.int("CMSStatus"))}, err
}
