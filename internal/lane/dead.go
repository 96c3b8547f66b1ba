package lane

import (
	"context"
	"time"

	"weir/internal/storage"
)

// DeadRow is a line of a lane's list of dead messages.
type DeadRow struct {
	Seq       int64
	Key       string
	Contract  string
	DiedAt    time.Time
	Reason    string
	CMSStatus int
}

// Dead reads the dead messages of a lane behind a place in the log, in the order of the
// log, up to limit, and says whether there are more.
func (s *Store) Dead(ctx context.Context, lane int, behind int64, limit int) (rows []DeadRow, more bool, err error) {
	page, err := s.Table.Range(ctx, storage.Query{Partition: s.partition(lane), After: deadKey(behind), To: after(prefixDead), Limit: limit})
	if err != nil {
		return nil, false, err
	}
	for _, r := range page.Rows {
		seq, err := parseSeq(r.Key[len(prefixDead):])
		if err != nil {
			return nil, false, err
		}
		v := values{r.Values}
		rows = append(rows, DeadRow{Seq: seq, Key: v.string("Key"), Contract: v.string("Contract"), DiedAt: v.time("DiedAt"), Reason: v.string("Reason"), CMSStatus: int(v.int("CMSStatus"))})
	}
	return rows, page.More, nil
}
