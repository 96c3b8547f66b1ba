package lane

import (
	"context"
	"errors"
	"strings"
	"time"

	"weir/internal/lane/outbox"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// A request is a row by which another process asks the holder for a change. The transaction that
// inserts the row also raises Head.RequestSeq, so no holder can miss the request.
//
// A scheduled message is cancelled or rescheduled without the holder. Each scheduled message has a
// row whose row key begins with s_ and has the due time. Cancel deletes this row, and Reschedule
// replaces it. If the holder takes up the due message at the same time, the holder's commit fails,
// because the row is gone. Cancel also inserts a request with Done, so that the holder counts the
// message as cancelled.

// RequestKind is the kind of change. The row key of a request begins with w_<kind>. If the request
// is about a message, _<seq> follows; if it is about a key and contract, _<hash> follows.
type RequestKind string

// Kinds of requests. RequestErase, RequestForget and RequestForgetID are further kinds.
const (
	RequestCancel  RequestKind = "cancel"  // cancel a message
	RequestReplay  RequestKind = "replay"  // replay a dead message
	RequestDiscard RequestKind = "discard" // discard a dead message
	RequestResume  RequestKind = "resume"  // end the lane's pause for the CMS (see CMSPause)
)

// Request is a request that waits for the holder.
type Request struct {
	Kind RequestKind
	Seq  int64 // sequence number of the message; 0 = the request is not about a message
	Done bool  // the message is already cancelled; the holder only has to count it
	key  string

	Force bool           // for a replay: replay even if a later message of the key was delivered
	edit  map[string]any // for a replay: columns of the edited body; empty = no edit

	reason string // for a discard: the operator's reason
}

// requestPatience limits how long a call repeats a change that fails because of storage or of other
// processes.
const requestPatience = 5 * time.Second

func requestKey(kind RequestKind, seq int64) string {
	return rows.RequestPrefix + string(kind) + "_" + rows.SeqPos(seq)
}

// forcedReplayKey returns the row key of a request for a forced replay. It differs from the key of
// an unforced request, because a forced and an unforced request for the same message can wait
// together. The row of the forced request sorts directly after the row of the unforced one.
func forcedReplayKey(seq int64) string { return requestKey(RequestReplay, seq) + "_forced" }

func cancelKey(seq int64) string { return requestKey(RequestCancel, seq) }

func requestFrom(r storage.Row) Request {
	kind, _, _ := strings.Cut(strings.TrimPrefix(r.Key, rows.RequestPrefix), "_")
	v := r.Values
	return Request{Kind: RequestKind(kind), Seq: rows.Seq.Of(v), Done: rows.IsDone.Of(v),
		key: r.Key, Force: rows.Force.Of(v), edit: editFrom(v), reason: rows.DiscardReason.Of(v)}
}

// PendingRequests reads the first requests of a lane, at most limit. If it returns fewer than
// limit, no other request waits. If a forced and an unforced request for the replay of the same
// message wait, the unforced one counts as forced, too. The forced one is in the next row, so
// PendingRequests reads one row more than limit.
func (ds DeliveryState) PendingRequests(ctx context.Context, lane int,
	limit int) ([]Request, error) {
	found, err := rows.ReadFirst(ctx, ds.store.Table,
		rows.WithPrefix(ds.store.Partition(lane), rows.RequestPrefix, nil), limit+1)
	if err != nil {
		return nil, err
	}

	var requests []Request
	for _, r := range found {
		w := requestFrom(r)
		if i := len(requests) - 1; w.Force && i >= 0 && requests[i].Kind == w.Kind &&
			requests[i].Seq == w.Seq {
			requests[i].Force = true
		}
		requests = append(requests, w)
	}

	return requests[:min(len(requests), limit)], nil
}

// ResolveRequest removes the row of a request that the holder has granted or refused. If the
// request has Done, ResolveRequest counts the message as cancelled.
func (c *Change) ResolveRequest(w Request) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Delete, Key: w.key})
	if w.Done {
		c.UpdateTail(func(t *Tail) { t.Counts.countStage(weir.Cancelled) })
	}
}

// Cancel cancels a message. A scheduled message is cancelled when Cancel returns. For any other
// waiting message Cancel stores a request, and returns the Status before the request. The holder
// cancels the message if it reads the request before it sends the message. Errors:
//   - Conflict: the message is final, in a stage other than cancelled. If it is cancelled, Cancel
//     has no effect.
//   - NotFound: there is no such message, or retention has removed it.
//   - Unavailable: the number of lanes is being changed, or it is not known whether the change or
//     the request was stored.
func (rs Requests) Cancel(ctx context.Context, id weir.ID) (weir.Status, error) {
	st, err := rs.cancelWithNonce(ctx, id, newNonce())
	if weir.KindOf(err) == weir.Conflict && st.Stage == weir.Cancelled {
		return st, nil
	}
	return st, err
}

// cancelWithNonce is Cancel with a nonce. A cancellation stores the nonce in the message's row. If
// the cancellation is repeated because its answer was lost, the nonce in the row shows that the
// message was cancelled by an earlier try.
func (rs Requests) cancelWithNonce(ctx context.Context, id weir.ID,
	nonce string) (weir.Status, error) {
	hasRequested := false
	var st weir.Status
	err := rs.changeMessage(ctx, id, func(e *Entry) ([]storage.Op, error) {
		st = e.status
		switch {
		case e.Stage == weir.Cancelled && (hasRequested || rows.CancelNonce.Of(e.row) == nonce):
			return nil, nil // an earlier try has cancelled the message, and the answer was lost
		case e.Stage.Final():
			return nil, errConflict("cancel", "the message is "+string(e.Stage)+" already")
		case e.Stage == weir.Scheduled:
			st.Stage, st.FinishedAt = weir.Cancelled,
				rs.store.Now().UTC().Truncate(time.Microsecond)
			return cancelOps(e, st.FinishedAt, nonce), nil
		}

		asked, err := rs.store.rowsOfLane(e.Message.ID.Lane).hasRow(ctx, cancelKey(e.Seq()))
		if err != nil || asked {
			return nil, err
		}

		hasRequested = true

		return []storage.Op{{Kind: storage.Insert, Key: cancelKey(e.Seq()),
			Values: rows.Values(rows.Seq.Is(e.Seq()))}}, nil
	})
	if err == nil && st.Stage == weir.Cancelled && st.Message.Callback != "" &&
		rs.store.Notifier != nil {
		rs.store.Notifier.WakeOutbox(st.Message.ID.Lane)
	}

	return st, err
}

// cancelOps returns the operations that cancel a scheduled message.
func cancelOps(e *Entry, at time.Time, nonce string) []storage.Op {
	ops := []storage.Op{
		{Kind: storage.Delete, Key: dueKey(e.DueTime())},
		{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()), IfMatch: e.rowETag(),
			Values: rows.Values(
				rows.Stage.Is(string(weir.Cancelled)), rows.FinishedAt.Is(at),
				rows.CancelNonce.Is(nonce))},
		{Kind: storage.Insert, Key: cancelKey(e.Seq()),
			Values: rows.Values(rows.Seq.Is(e.Seq()), rows.IsDone.Is(true))},
	}

	if url := e.Message.Callback; url != "" {
		event, marker := outbox.EventOps(outbox.FinalEvent(e.Seq(), weir.Cancelled, at,
			outbox.CallbackTo, url))
		ops = append(ops, event, marker)
	}

	return ops
}

// Reschedule changes the due time of a scheduled message. version is the weir.Tag of the Status
// that the caller has read; if version is empty, Reschedule accepts any state. Errors:
//   - Conflict: the message is not scheduled any more.
//   - Stale: the message has changed since the caller read the Status.
//   - NotFound and Unavailable: as for Cancel.
func (rs Requests) Reschedule(ctx context.Context, id weir.ID, due time.Time,
	version string) (weir.Status, error) {
	due = RoundDueTime(due)
	nonce := newNonce()
	err := rs.changeMessage(ctx, id, func(e *Entry) ([]storage.Op, error) {
		switch {
		case rows.MoveNonce.Of(e.row) == nonce:
			return nil, nil
		case e.Stage != weir.Scheduled:
			return nil, errConflict("move",
				"the message is not scheduled any more, it is "+string(e.Stage))
		case version != "" && version != weir.Tag(e.status.Version):
			return nil, &weir.Error{Kind: weir.Stale, Op: "move",
				Message: "the message has changed since: read it again"}
		}

		ops := []storage.Op{{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()),
			IfMatch: e.rowETag(),
			Values:  rows.Values(rows.DueAt.Is(due), rows.MoveNonce.Is(nonce))}}

		if !due.Equal(e.Message.DueAt) {
			ops = append(ops, storage.Op{Kind: storage.Delete, Key: dueKey(e.DueTime())},
				scheduleOp(DueTime{At: due, Seq: e.Seq()}, e.KeyHash()))
		}

		return ops, nil
	})
	if err != nil {
		return weir.Status{}, err
	}

	return rs.store.Messages().Status(ctx, id)
}

// RoundDueTime rounds a due time up to whole microseconds, because rows have due times in
// microseconds.
func RoundDueTime(t time.Time) time.Time {
	return t.Add(time.Microsecond - 1).UTC().Truncate(time.Microsecond)
}

// changeMessage reads the message, and calls ask for the operations of a change. It executes the
// operations in one transaction, which also raises Head.RequestSeq. It repeats all this if another
// process has changed a row meanwhile, or if storage has not answered. If ask returns no
// operations, changeMessage changes nothing.
func (rs Requests) changeMessage(ctx context.Context, id weir.ID,
	ask func(*Entry) ([]storage.Op, error)) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	err := rows.Update(ctx, func() (bool, error) {
		e, err := rs.store.Messages().findMessage(ctx, id)
		if err != nil {
			return true, err
		}

		ops, err := ask(e)
		if err != nil || len(ops) == 0 {
			return true, err
		}

		return judgeRequest(rs.raiseRequestSeq(ctx, e.Message.ID.Lane, ops))
	}, rs.store.PauseAfterConflict)

	return explainUndone(err)
}

// judgeRequest reports whether a change is finished; err is the error of the change. A change is
// finished if it was made, or if a repeat would fail, too. In the second case the returned error is
// for the caller of the API.
func judgeRequest(err error) (done bool, _ error) {
	switch storage.KindOf(err) {
	case storage.Precondition, storage.NotFound, storage.Conflict, storage.Ambiguous,
		storage.Throttled,
		storage.Unavailable:
		return false, err
	}

	if err != nil {
		err = APIError("request", err)
	}

	return true, err
}

// explainUndone replaces rows.ErrUndone by the error for the caller of the API. rows.ErrUndone
// means that it is not known whether the change was made. explainUndone returns any other error
// unchanged.
func explainUndone(err error) error {
	if !errors.Is(err, rows.ErrUndone) {
		return err
	}
	return &weir.Error{Kind: weir.Unavailable, Op: "request",
		Message:    "storage cannot be reached at the moment, or the lane is too busy; it may have been done: ask again",
		RetryAfter: 2 * time.Second, Err: err}
}

// PauseAfterConflict returns a random pause for rows.Update, so that two processes in conflict do
// not repeat their changes at the same moment.
func (s *Store) PauseAfterConflict(error) time.Duration { return s.drawPause(conflictPause) }

// raiseRequestSeq executes ops in one transaction, which also raises Head.RequestSeq. It returns
// SealedError if the lane is sealed.
func (rs Requests) raiseRequestSeq(ctx context.Context, lane int, ops []storage.Op) error {
	c, err := rs.store.ReadControl(ctx, lane)
	if err != nil {
		return err
	}
	if c.Head.IsSealed {
		return SealedError("request")
	}

	all := append([]storage.Op{c.Head.UpdateOp(rows.RequestSeq.Is(c.Head.RequestSeq + 1))}, ops...)
	_, err = rs.store.Table.Transact(ctx, rs.store.Partition(lane), all)

	return err
}

func errConflict(op, message string) error {
	return &weir.Error{Kind: weir.Conflict, Op: op, Message: message}
}

// nonceOf returns the nonce of a call. If the call has an id, a repeat of the call has the same
// nonce.
func nonceOf(ctx context.Context) string {
	if call := weir.CallOf(ctx); call != "" {
		return call
	}
	return newNonce()
}

func (e *Entry) rowETag() storage.ETag { return storage.ETag(strings.TrimSpace(e.status.Version)) }
