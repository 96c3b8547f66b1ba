package lane

import (
	"context"
	"strconv"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// WaitingMessages are the waiting messages outside the log: held ones and scheduled ones.
type WaitingMessages struct {
	Held       []HeldMessage // by block, then by position
	DueTimes   []DueTime     // by time
	IsComplete bool          // there are no others
}

// ReadWaiting reads the held and the scheduled messages of a lane: one page if that is enough, otherwise at
// most the given number of pages of each kind.
func (s *Store) ReadWaiting(ctx context.Context, lane, pages int) (WaitingMessages, error) {
	found, more, err := rows.ReadPages(ctx, s.Table,
		storage.Query{Partition: s.partitionOf(lane), From: rows.HeldPrefix, To: rows.PrefixEnd(rows.DuePrefix),
			Columns: waitingColumns}, 1)
	if err == nil && more {
		found, more, err = s.readWaitingPages(ctx, lane, pages)
	}
	st := WaitingMessages{IsComplete: !more}
	for _, r := range found {
		if strings.HasPrefix(r.Key, rows.HeldPrefix) {
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

var waitingColumns = rows.Names(rows.Seq, rows.WasTried, rows.WasReplayed)

// ReadKeyQueue reads the held messages of a block in order, at most the given number of pages, and reports
// whether these are all.
func (s *Store) ReadKeyQueue(ctx context.Context, lane int, block string, pages int) (line []HeldMessage, whole bool,
	err error) {
	prefix := rows.HeldKey(block, "")
	found, more, err := rows.ReadPages(ctx, s.Table,
		rows.WithPrefix(s.partitionOf(lane), prefix, waitingColumns), pages)
	for _, r := range found {
		line = append(line, heldFromRow(r))
	}
	return line, !more, err
}

func (s *Store) readWaitingPages(ctx context.Context, lane, pages int) (all []storage.Row, more bool, err error) {
	for _, prefix := range []string{rows.HeldPrefix, rows.DuePrefix} {
		found, cut, err := rows.ReadPages(ctx, s.Table,
			rows.WithPrefix(s.partitionOf(lane), prefix, waitingColumns), pages)
		if err != nil {
			return nil, false, err
		}
		all, more = append(all, found...), more || cut
	}
	return all, more, nil
}

// ReleasedAt returns when a scheduled message was released; zero = it came through the log.
func (h HeldMessage) ReleasedAt() time.Time {
	_, due, released := strings.Cut(h.OrderPos, "_")
	at, _, _ := strings.Cut(due, "_")
	micros, err := strconv.ParseInt(at, 10, 64)
	if !released || err != nil {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}
