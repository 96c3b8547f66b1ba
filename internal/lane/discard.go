package lane

import (
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// An operator discards a dead message that is never to be written to the CMS. A discard is a
// request, which the holder carries out. The message, its history and the operator's reason are
// kept until retention removes the message.

// Discard requests that the holder discards a dead message. The returned Status may still have the
// state before the request. Repeating a call has no effect. Errors:
//   - Conflict: the message is in a stage other than dead and discarded.
//   - Conflict: a request to replay the message waits for the holder.
//   - NotFound: as for Messages.Status, or retention is removing the message.
//   - Unavailable: the request may have been stored.
func (rs Requests) Discard(ctx context.Context, id weir.ID, reason string) (weir.Status, error) {
	var st weir.Status
	err := rs.changeMessage(ctx, id, func(e *Entry) ([]storage.Op, error) {
		st = e.status
		return rs.discardOps(ctx, e, reason)
	})
	return st, err
}

// discardOps returns the operations that store a request to discard e, a message that was just
// read. It returns none if the message is already discarded, or if such a request already waits.
func (rs Requests) discardOps(ctx context.Context, e *Entry, reason string) ([]storage.Op, error) {
	switch {
	case e.Stage == weir.Discarded:
		return nil, nil
	case e.Stage != weir.Dead:
		return nil, errConflict("discard",
			"only a dead message can be discarded, and this one is "+string(e.Stage))
	case rows.IsBeingRemoved.Of(e.row):
		return nil, &weir.Error{Kind: weir.NotFound, Op: "discard",
			Message: "the message is being removed after its retention"}
	}

	isAsked, err := rs.store.rowsOfLane(e.Message.ID.Lane).isDiscardPending(ctx, e)
	if err != nil {
		return nil, APIError("discard", err)
	}
	if isAsked {
		return nil, nil
	}

	isReplayAsked, err := rs.store.rowsOfLane(e.Message.ID.Lane).hasPrefix(ctx,
		requestKey(RequestReplay, e.Seq()))
	if err != nil {
		return nil, APIError("discard", err)
	}

	if isReplayAsked {
		return nil, errConflict("discard",
			"a replay of the message is waiting: discard it if it is dead again")
	}

	return discardRequestOps(e, rs.store.Now(), reason), nil
}

// discardRequestOps returns the operations of a request to discard e. They also write the message's
// row under its ETag. So if a replay and a discard are requested at the same time, only one request
// is stored. If retention read the row before this write, the removal of the message fails, because
// the row has a new ETag.
func discardRequestOps(e *Entry, now time.Time, reason string) []storage.Op {
	return []storage.Op{
		{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()), IfMatch: e.rowETag(),
			Values: rows.Values(rows.DiscardAskedAt.Is(now.UTC().Truncate(time.Microsecond)))},
		{Kind: storage.Insert, Key: requestKey(RequestDiscard, e.Seq()),
			Values: rows.Sparse(rows.Seq.Is(e.Seq()), rows.DiscardReason.Is(reason))},
	}
}

// isDiscardPending reports whether a request to discard the message waits for the holder. It reads
// storage only if there was such a request.
func (p partition) isDiscardPending(ctx context.Context, e *Entry) (bool, error) {
	if e.status.DiscardAskedAt.IsZero() {
		return false, nil
	}
	return p.hasRow(ctx, requestKey(RequestDiscard, e.Seq()))
}

// Discard makes a dead message discarded, as the request w asks. The row of an erased message gets
// no reason, because a reason can have content.
func (c *Change) Discard(e *Entry, w Request, at time.Time) {
	diedAt, reason := e.status.FinishedAt, w.reason
	if e.IsErased() {
		reason = ""
	}

	e.Stage, e.status.FinishedAt = weir.Discarded, at
	c.UpdateTail(func(t *Tail) {
		t.Counts.Dead--
		t.Counts.countStage(weir.Discarded)
	})

	c.final = append(c.final, e.Seq())
	c.addCallback(e.Seq(), e.Message.Callback, weir.Discarded, at)
	c.ops = append(c.ops,
		storage.Op{Kind: storage.Delete, Key: rows.DeadKey(e.Seq())},
		storage.Op{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()), Values: rows.Sparse(
			rows.Stage.Is(string(e.Stage)), rows.FinishedAt.Is(at),
			rows.DiedAt.Is(diedAt), rows.DiscardReason.Is(reason))})
}
