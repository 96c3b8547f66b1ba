package lists

import (
	"context"
	"strings"

	"weir/internal/lane"
	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// WaitingMessages has the held and the scheduled messages of a lane.
type WaitingMessages struct {
	// sorted by block, then by position; without Contract, Version and Callback
	Held       []lane.HeldMessage
	DueTimes   []lane.DueTime // due times of the scheduled messages, sorted
	IsComplete bool           // the lane has no further held or scheduled messages
}

// ReadWaiting reads the held and the scheduled messages of a lane. If they do not fit into one
// page, it reads up to the given number of pages of held messages, and up to the same number of
// pages of scheduled messages.
func (l Reader) ReadWaiting(ctx context.Context, number, pages int) (WaitingMessages, error) {
	found, more, err := rows.ReadPages(ctx, l.Store.Table,
		storage.Query{Partition: l.Store.Partition(number), From: rows.HeldPrefix,
			To: rows.PrefixEnd(rows.DuePrefix), Columns: waitingColumns}, 1)
	if err == nil && more {
		found, more, err = l.readWaitingPages(ctx, number, pages)
	}

	st := WaitingMessages{IsComplete: !more}
	for _, r := range found {
		if strings.HasPrefix(r.Key, rows.HeldPrefix) {
			st.Held = append(st.Held, lane.HeldFrom(r))
			continue
		}
		st.DueTimes = append(st.DueTimes, l.Store.DueTimesOf(number, []storage.Row{r})...)
	}

	return st, err
}

var waitingColumns = rows.Names(rows.Seq, rows.WasTried, rows.WasReplayed)

// ReadKeyQueue reads the held messages of a block in order, without Contract, Version and Callback.
// It reads at most the given number of pages, and reports whether the block has no further held
// messages.
func (l Reader) ReadKeyQueue(ctx context.Context, number int, block string,
	pages int) (held []lane.HeldMessage, isComplete bool, err error) {
	prefix := rows.HeldKey(block, "")
	found, more, err := rows.ReadPages(ctx, l.Store.Table,
		rows.WithPrefix(l.Store.Partition(number), prefix, waitingColumns), pages)
	for _, r := range found {
		held = append(held, lane.HeldFrom(r))
	}
	return held, !more, err
}

func (l Reader) readWaitingPages(ctx context.Context, number, pages int) (all []storage.Row,
	more bool, err error) {
	for _, prefix := range []string{rows.HeldPrefix, rows.DuePrefix} {
		found, cut, err := rows.ReadPages(ctx, l.Store.Table,
			rows.WithPrefix(l.Store.Partition(number), prefix, waitingColumns), pages)
		if err != nil {
			return nil, false, err
		}
		all, more = append(all, found...), more || cut
	}

	return all, more, nil
}
