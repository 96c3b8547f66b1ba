package lane

import (
	"context"

	"weir/internal/storage"
	"weir/internal/weir"
)

// DiscardCounts counts messages by the result of DiscardMany.
type DiscardCounts struct {
	Asked   int64 // messages for which a request to discard waits for the holder
	TooLate int64 // messages that are not dead any more, were removed, or have a request for a replay
}

// discardGroup is the number of messages in one transaction, which has two operations for each message and one for
// head.
const discardGroup = (storage.MaxOps - 1) / 2

// DiscardMany requests that the holder discards dead messages of one lane. It writes the requests for many messages in
// one transaction. The entries come from ReadMany. After an error, the counts have only the messages that were handled
// before the error. The call can be repeated.
func (rs Requests) DiscardMany(ctx context.Context, lane int, entries []*Entry, reason string) (DiscardCounts,
	error) {
	b := bulkDiscard{store: rs.store, lane: lane, reason: reason}
	var group []*Entry
	for i, e := range entries {
		if e.Stage == weir.Dead && e.status.ReplayAskedAt.IsZero() && e.status.DiscardAskedAt.IsZero() {
			group = append(group, e)
		} else if err := b.discardAlone(ctx, e); err != nil { // Discard checks whether another request waits
			return b.counts, err
		}
		if len(group) == discardGroup || i == len(entries)-1 {
			if err := b.discardTogether(ctx, group); err != nil {
				return b.counts, err
			}
			group = nil
		}
	}
	return b.counts, nil
}

// bulkDiscard is one call of DiscardMany.
type bulkDiscard struct {
	store  *Store
	lane   int
	reason string
	counts DiscardCounts
}

// discardTogether requests the discard of a group with one transaction. If the transaction fails, discardTogether
// requests the discard of each message alone. A single message that has changed makes the transaction fail.
func (b *bulkDiscard) discardTogether(ctx context.Context, group []*Entry) error {
	if len(group) == 0 {
		return nil
	}
	var ops []storage.Op
	for _, e := range group {
		ops = append(ops, discardRequestOps(e, b.store.Now(), b.reason)...)
	}
	if err := b.store.Requests().raiseRequestSeq(ctx, b.lane, ops); err == nil {
		b.counts.Asked += int64(len(group))
		return nil
	}
	for _, e := range group {
		if err := b.discardAlone(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (b *bulkDiscard) discardAlone(ctx context.Context, e *Entry) error {
	_, err := b.store.Requests().Discard(ctx, e.Message.ID, b.reason)
	switch {
	case err == nil:
		b.counts.Asked++
		return nil
	case weir.KindOf(err) == weir.Conflict, weir.KindOf(err) == weir.NotFound:
		b.counts.TooLate++
		return nil
	}
	return err
}
