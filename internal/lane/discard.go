package lane

import (
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// An operator discards a dead message that is never to be written. A discard is a request, as a replay is, and the
// holder carries it out. The message stays with its history and the operator's reason until its retention is over.
//
// Earlier versions of the program read the rows, too, and do not know the stage "discarded". They take a message in an
// unknown stage for a waiting one, and a holder that reads the log anew could send it. So the stored stage is
// "cancelled", with the time of the discard beside it, and tail counts the message as cancelled. The number of
// discarded messages is in a marker of its own: a holder of an earlier version replaces tail, and would lose a column
// there.

// Discard requests that a dead message is given up for good. The lane's holder carries the request out, so the
// returned Status may be the state before. Repeating a call has no effect. Conflict: the message is neither dead nor
// discarded, or a request to replay it waits. NotFound: as for Messages.Status, or retention is removing the message.
// Unavailable: the request may or may not be stored.
func (rs Requests) Discard(ctx context.Context, id weir.ID, reason string) (weir.Status, error) {
	var st weir.Status
	err := rs.changeMessage(ctx, id, func(e *Entry) ([]storage.Op, error) {
		st = e.status
		return rs.discardOps(ctx, e, reason)
	})
	return st, err
}

// discardOps returns the operations of the request for a message as it is stored; none = there is nothing to do.
func (rs Requests) discardOps(ctx context.Context, e *Entry, reason string) ([]storage.Op, error) {
	switch {
	case e.Stage == weir.Discarded:
		return nil, nil
	case e.Stage != weir.Dead:
		return nil, errConflict("discard", "only a dead message can be discarded, and this one is "+string(e.Stage))
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
	isReplayAsked, err := rs.store.rowsOfLane(e.Message.ID.Lane).hasPrefix(ctx, requestKey(RequestReplay, e.Seq()))
	if err != nil {
		return nil, APIError("discard", err)
	}
	if isReplayAsked {
		return nil, errConflict("discard", "a replay of the message is waiting: discard it if it is dead again")
	}
	return discardRequestOps(e, rs.store.Now(), reason), nil
}

// discardRequestOps returns the operations of a request. They also write the message's row under its ETag. So if a
// replay and a discard are requested at the same time, only one request is stored. Retention finds a changed row, and
// does not remove the message.
func discardRequestOps(e *Entry, now time.Time, reason string) []storage.Op {
	return []storage.Op{
		{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()), IfMatch: e.rowETag(),
			Values: rows.Values(rows.DiscardAskedAt.Is(now.UTC().Truncate(time.Microsecond)))},
		{Kind: storage.Insert, Key: requestKey(RequestDiscard, e.Seq()),
			Values: rows.Sparse(rows.Seq.Is(e.Seq()), rows.DiscardReason.Is(reason))},
	}
}

// isDiscardPending reports whether a request to discard the message waits for the holder. It reads storage only if
// such a request was ever stored.
func (p partition) isDiscardPending(ctx context.Context, e *Entry) (bool, error) {
	if e.status.DiscardAskedAt.IsZero() {
		return false, nil
	}
	return p.hasRow(ctx, requestKey(RequestDiscard, e.Seq()))
}

// Discard gives a dead message up for good, as the request w asks.
func (c *Change) Discard(e *Entry, w Request, at time.Time) {
	diedAt := e.status.FinishedAt
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
			rows.Stage.Is(storedStage(e.Stage)), rows.DiscardedAt.Is(at), rows.FinishedAt.Is(at),
			rows.DiedAt.Is(diedAt), rows.DiscardReason.Is(w.reason))},
		storage.Op{Kind: storage.Upsert, Key: rows.SumsKey}) // saveSums fills in the values
}

// storedStage returns the value of rows.Stage for a stage.
func storedStage(stage weir.Stage) string {
	if stage == weir.Discarded {
		return string(weir.Cancelled)
	}
	return string(stage)
}

// StageFrom returns the stage of a message from its row. rows.Stage and rows.DiscardedAt must have been read.
func StageFrom(v map[string]any) weir.Stage {
	if stage := weir.Stage(rows.Stage.Of(v)); stage != weir.Cancelled || rows.DiscardedAt.Of(v).IsZero() {
		return stage
	}
	return weir.Discarded
}

// splitDiscarded reads the number of discarded messages from a marker, and subtracts it from the number of cancelled
// messages, which tail has.
func (c *Counts) splitDiscarded(markers []storage.Row) {
	for _, r := range markers {
		if r.Key == rows.SumsKey {
			c.Discarded = rows.Discarded.Of(r.Values)
			c.Cancelled -= c.Discarded
		}
	}
}

// saveSums fills in the marker !sums, if one of the operations writes that marker. The counters in it are known only
// when all changes of a transaction are together.
func saveSums(ops []storage.Op, n Counts) {
	for i := range ops {
		if ops[i].Key == rows.SumsKey {
			ops[i].Values = rows.Values(rows.Discarded.Is(n.Discarded))
		}
	}
}
