package lane

import (
	"context"
	"slices"
	"time"

	"weir/internal/clock"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// CancelCounts counts messages by the result of CancelMany.
type CancelCounts struct {
	Cancelled int64 // scheduled messages, which are cancelled when CancelMany returns
	Asked     int64 // messages for which a request to cancel waits for the holder
	TooLate   int64 // messages that were final or removed already
}

// CancelMany cancels the scheduled messages among the entries, and asks the holder to cancel the others. It takes many
// messages into one transaction. The entries are of one lane, and come from ReadMany or EntriesFrom. After an error,
// counts has only the messages before the failed one. The call can be repeated.
func (rs Requests) CancelMany(ctx context.Context, lane int, entries []*Entry) (counts CancelCounts, err error) {
	for len(entries) > 0 {
		nonce, at := newNonce(), rs.store.Now().UTC().Truncate(time.Microsecond)
		n, ops := cancelGroup(entries, at, nonce)
		if err := rs.cancelTogether(ctx, lane, entries[:n], ops, nonce, &counts); err != nil {
			return counts, err
		}
		entries = entries[n:]
	}
	return counts, nil
}

func isOutboxMarker(op storage.Op) bool { return op.Key == rows.OutboxKey }

// cancelGroup returns the operations for the first n entries: as many as fit into one transaction.
func cancelGroup(entries []*Entry, at time.Time, nonce string) (n int, ops []storage.Op) {
	hasMarker := false
	for _, e := range entries {
		more := []storage.Op{{Kind: storage.Insert, Key: cancelKey(e.Seq()), Values: rows.Values(rows.Seq.Is(e.Seq()))}}
		if e.Stage == weir.Scheduled {
			more = cancelOps(e, at, nonce)
		}
		if hasMarker {
			more = slices.DeleteFunc(more, isOutboxMarker) // a transaction must not write a row twice
		}
		if len(ops)+len(more) >= storage.MaxOps { // one operation is for head
			break
		}
		ops, n, hasMarker = append(ops, more...), n+1, hasMarker || slices.ContainsFunc(more, isOutboxMarker)
	}
	return n, ops
}

// cancelTogether cancels a group with one transaction. The transaction fails if one of the messages has changed. After
// a failed transaction, cancelTogether cancels the messages one by one.
func (rs Requests) cancelTogether(ctx context.Context, lane int, group []*Entry, ops []storage.Op, nonce string,
	counts *CancelCounts) error {
	err := rs.raiseRequestSeq(ctx, lane, ops)
	if storage.Is(err, storage.Precondition) && storage.FailedAt(err) <= 0 {
		if clock.Sleep(ctx, rs.store.drawPause(conflictPause)) { // another process has changed head
			err = rs.raiseRequestSeq(ctx, lane, ops)
		}
	}
	if err == nil {
		for _, e := range group {
			counts.countCancelled(e.Stage == weir.Scheduled)
		}
		if slices.ContainsFunc(group, func(e *Entry) bool {
			return e.Stage == weir.Scheduled && e.Message.Callback != ""
		}) && rs.store.Notifier != nil {
			rs.store.Notifier.WakeOutbox(lane)
		}
		return nil
	}
	for _, e := range group {
		st, err := rs.cancelWithNonce(ctx, e.Message.ID, nonce)
		switch weir.KindOf(err) {
		case weir.Conflict, weir.NotFound:
			counts.TooLate++
			continue
		}
		if err != nil {
			return err
		}
		counts.countCancelled(st.Stage == weir.Cancelled)
	}
	return nil
}

func (c *CancelCounts) countCancelled(atOnce bool) {
	if atOnce {
		c.Cancelled++
		return
	}
	c.Asked++
}
