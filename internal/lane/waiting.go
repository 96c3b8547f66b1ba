package lane

import (
	"context"
	"strconv"
	"strings"
	"time"

	"weir/internal/storage"
)

// WaitingMessages is what waits in a lane and has left its log: the messages in the lines of their
// keys, and the scheduled ones.
type WaitingMessages struct {
	Held       []HeldMessage // line by line
	DueTimes   []DueTime     // by time
	IsComplete bool          // these are all
}

// ReadWaiting reads what has left a lane's log and waits, in one page where that is enough, and
// else up to so many pages of each kind.
func (s *Store) ReadWaiting(ctx context.Context, lane, pages int) (WaitingMessages, error) {
	rows, more, err := s.rows(ctx, storage.Query{Partition: s.partition(lane), From: prefixHeld, To: after(prefixDue), Columns: standingColumns}, 1)
	if err == nil && more {
		rows, more, err = s.standing(ctx, lane, pages)
	}
	st := WaitingMessages{IsComplete: !more}
	for _, r := range rows {
		if strings.HasPrefix(r.Key, prefixHeld) {
			st.Held = append(st.Held, heldFromRow(r))
			continue
		}
		d, err := parseDue(r.Key)
		if err != nil {
			return WaitingMessages{}, err
		}
		st.DueTimes = append(st.DueTimes, d)
	}
	return st, err
}

var standingColumns = []string{"Seq", "Tried", "Again"}

// ReadKeyQueue reads up to so many pages of a block's line, in order, and says whether that is all.
func (s *Store) ReadKeyQueue(ctx context.Context, lane int, block string, pages int) (line []HeldMessage, whole bool, err error) {
	prefix := heldKey(block, "")
	rows, more, err := s.rows(ctx, storage.Query{Partition: s.partition(lane), From: prefix, To: after(prefix), Columns: standingColumns}, pages)
	for _, r := range rows {
		line = append(line, heldFromRow(r))
	}
	return line, !more, err
}

func (s *Store) standing(ctx context.Context, lane, pages int) (all []storage.Row, more bool, err error) {
	for _, prefix := range []string{prefixHeld, prefixDue} {
		rows, cut, err := s.rows(ctx, storage.Query{Partition: s.partition(lane), From: prefix, To: after(prefix), Columns: standingColumns}, pages)
		if err != nil {
			return nil, false, err
		}
		all, more = append(all, rows...), more || cut
	}
	return all, more, nil
}

// rows reads up to so many pages, and says whether there are more.
func (s *Store) rows(ctx context.Context, q storage.Query, pages int) (rows []storage.Row, more bool, err error) {
	for range pages {
		page, err := s.Table.Range(ctx, q)
		if err != nil {
			return nil, false, err
		}
		rows, more = append(rows, page.Rows...), page.More
		if !more {
			break
		}
		q.From, q.After = "", page.Rows[len(page.Rows)-1].Key
	}
	return rows, more, nil
}

// first reads the first rows that a query asks for, up to limit: fewer mean that there are no
// more. Storage alone may give a page that is not full.
func (s *Store) first(ctx context.Context, q storage.Query, limit int) (rows []storage.Row, err error) {
	for more := true; more && len(rows) < limit; {
		q.Limit = limit - len(rows)
		page, err := s.Table.Range(ctx, q)
		if err != nil {
			return nil, err
		}
		if rows, more = append(rows, page.Rows...), page.More; more {
			q.From, q.After = "", rows[len(rows)-1].Key
		}
	}
	return rows, nil
}

// ReleasedAt is the moment at which a message that was scheduled joined its line; zero = it
// came through the log.
func (h HeldMessage) ReleasedAt() time.Time {
	_, due, released := strings.Cut(h.OrderPos, "_")
	at, _, _ := strings.Cut(due, "_")
	micros, err := strconv.ParseInt(at, 10, 64)
	if !released || err != nil {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}
