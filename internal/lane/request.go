package lane

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/notify/outbox"
	"weir/internal/storage"
	"weir/internal/weir"
)

// A request is a row by which another process asks the holder for a change. The transaction that inserts the row
// raises the request number in head, so no holder can miss the request. A scheduled message is cancelled or
// rescheduled without the holder: the process that got the call deletes or replaces the s_ row. A holder that is about
// to release the message finds that row gone. A cancellation also inserts a request that is marked as done: by it the
// holder counts the message as cancelled.

// RequestKind is the kind of change. The key of a request's row is w_<kind>, followed by _<seq> if the request is
// about a message, or by _<hash> if it is about a key and contract.
type RequestKind string

// Kinds of requests. RequestErase, RequestForget and RequestForgetID are further kinds.
const (
	RequestCancel  RequestKind = "cancel"  // a message
	RequestReplay  RequestKind = "replay"  // a dead message
	RequestDiscard RequestKind = "discard" // a dead message
	RequestResume  RequestKind = "resume"  // the lane: to end a pause for the CMS
)

// Request is a request that waits for the holder.
type Request struct {
	Kind RequestKind
	Seq  int64 // sequence number of the message; 0 = the request is not about a message
	Done bool  // the message is cancelled already, and the holder still has to count it
	key  string

	Force bool           // for a replay: it is wanted even if a later message of the key was delivered
	edit  map[string]any // for a replay: columns of another body; empty = the present body

	reason string // for a discard: the operator's reason
}

// requestPatience limits how long a call tries to reach storage and to win the race for head.
const requestPatience = 5 * time.Second

// requestKey returns the row key of a request about a message.
func requestKey(kind RequestKind, seq int64) string {
	return rows.RequestPrefix + string(kind) + "_" + rows.SeqPos(seq)
}

// forcedReplayKey returns the row key of a request for a forced replay. The key of an unforced request differs: such
// a request for the same message may wait already, and the holder may refuse it. The row of the forced request comes
// directly after the row of the unforced one.
func forcedReplayKey(seq int64) string { return requestKey(RequestReplay, seq) + "_forced" }

func cancelKey(seq int64) string { return requestKey(RequestCancel, seq) }

func requestFrom(r storage.Row) Request {
	kind, _, _ := strings.Cut(strings.TrimPrefix(r.Key, rows.RequestPrefix), "_")
	v := r.Values
	return Request{Kind: RequestKind(kind), Seq: rows.Seq.Of(v), Done: rows.IsDone.Of(v), key: r.Key,
		Force: rows.Force.Of(v), edit: editFrom(v), reason: rows.DiscardReason.Of(v)}
}

// PendingRequests reads the first requests of a lane, at most limit. If it returns fewer than limit, the lane has no
// others. It reads one row more than it returns, because that row may be a forced replay: then the unforced request
// before it counts as forced, too.
func (ds DeliveryState) PendingRequests(ctx context.Context, lane int, limit int) ([]Request, error) {
	found, err := rows.ReadFirst(ctx, ds.store.Table, rows.WithPrefix(ds.store.Partition(lane), rows.RequestPrefix,
		nil), limit+1)
	if err != nil {
		return nil, err
	}
	var requests []Request
	for _, r := range found {
		w := requestFrom(r)
		if i := len(requests) - 1; w.Force && i >= 0 && requests[i].Kind == w.Kind && requests[i].Seq == w.Seq {
			requests[i].Force = true
		}
		requests = append(requests, w)
	}
	return requests[:min(len(requests), limit)], nil
}

// ResolveRequest removes a request that the holder has granted or refused. If the request is a cancellation that was
// done already, ResolveRequest counts it.
func (c *Change) ResolveRequest(w Request) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Delete, Key: w.key})
	if w.Done {
		c.UpdateTail(func(t *Tail) { t.Counts.countStage(weir.Cancelled) })
	}
}

// Cancel cancels a message. A scheduled message is cancelled when Cancel returns. A message in the log is cancelled
// if the lane's holder reads the request before it sends the message; the returned Status then has the state before
// the request. Conflict: the message is final. NotFound: as for Messages.Status. Unavailable: it is not known whether
// the message was cancelled, or the request stored.
func (rs Requests) Cancel(ctx context.Context, id weir.ID) (weir.Status, error) {
	return rs.cancelWithNonce(ctx, id, newNonce())
}

// cancelWithNonce is Cancel with a nonce, by which a repeat recognizes that an earlier try has cancelled the message.
func (rs Requests) cancelWithNonce(ctx context.Context, id weir.ID, nonce string) (weir.Status, error) {
	hasRequested := false
	var st weir.Status
	err := rs.changeMessage(ctx, id, func(e *Entry) ([]storage.Op, error) {
		st = e.status
		switch {
		case e.Stage == weir.Cancelled && (hasRequested || rows.CancelNonce.Of(e.row) == nonce):
			return nil, nil // an earlier try has cancelled the message, and its answer was lost
		case e.Stage.Final():
			return nil, errConflict("cancel", "the message is "+string(e.Stage)+" already")
		case e.Stage == weir.Scheduled:
			st.Stage, st.FinishedAt = weir.Cancelled, rs.store.Now().UTC().Truncate(time.Microsecond)
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
	if err == nil && st.Stage == weir.Cancelled && st.Message.Callback != "" && rs.store.Notifier != nil {
		rs.store.Notifier.WakeOutbox(st.Message.ID.Lane)
	}
	return st, err
}

// cancelOps returns the operations that cancel a scheduled message.
func cancelOps(e *Entry, at time.Time, nonce string) []storage.Op {
	ops := []storage.Op{
		{Kind: storage.Delete, Key: dueKey(e.DueTime())},
		{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()), IfMatch: e.rowETag(), Values: rows.Values(
			rows.Stage.Is(string(weir.Cancelled)), rows.FinishedAt.Is(at), rows.CancelNonce.Is(nonce))},
		{Kind: storage.Insert, Key: cancelKey(e.Seq()),
			Values: rows.Values(rows.Seq.Is(e.Seq()), rows.IsDone.Is(true))},
	}
	if url := e.Message.Callback; url != "" {
		event, marker := outbox.EventOps(outbox.FinalEvent(e.Seq(), weir.Cancelled, at, outbox.CallbackTo, url))
		ops = append(ops, event, marker)
	}
	return ops
}

// Reschedule changes the due time of a scheduled message. version is the weir.Tag of the Status on which the caller
// decided; empty = any. Conflict: the message is not scheduled any more. Stale: the message has changed since that
// Status. NotFound and Unavailable: as for Cancel.
func (rs Requests) Reschedule(ctx context.Context, id weir.ID, due time.Time, version string) (weir.Status, error) {
	due = RoundDueTime(due)
	nonce := newNonce()
	err := rs.changeMessage(ctx, id, func(e *Entry) ([]storage.Op, error) {
		switch {
		case rows.MoveNonce.Of(e.row) == nonce:
			return nil, nil
		case e.Stage != weir.Scheduled:
			return nil, errConflict("move", "the message is not scheduled any more, it is "+string(e.Stage))
		case version != "" && version != weir.Tag(e.status.Version):
			return nil, &weir.Error{Kind: weir.Stale, Op: "move",
				Message: "the message has changed since: read it again"}
		}
		ops := []storage.Op{{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()), IfMatch: e.rowETag(),
			Values: rows.Values(rows.DueAt.Is(due), rows.MoveNonce.Is(nonce))}}
		if !due.Equal(e.Message.DueAt) {
			ops = append(ops, storage.Op{Kind: storage.Delete, Key: dueKey(e.DueTime())},
				storage.Op{Kind: storage.Insert, Key: dueKey(DueTime{At: due, Seq: e.Seq()}), Values: map[string]any{}})
		}
		return ops, nil
	})
	if err != nil {
		return weir.Status{}, err
	}
	return rs.store.Messages().Status(ctx, id)
}

// RoundDueTime rounds a due time up to whole microseconds, the precision of rows.
func RoundDueTime(t time.Time) time.Time {
	return t.Add(time.Microsecond - 1).UTC().Truncate(time.Microsecond)
}

// changeMessage makes the change that ask returns for the stored message, and raises the request number in head
// with it. If another process was faster, it calls ask again. If ask returns no operations, there is nothing to
// change.
func (rs Requests) changeMessage(ctx context.Context, id weir.ID, ask func(*Entry) ([]storage.Op, error)) error {
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

// judgeRequest reports whether a change that returned err is finished, with success or with a lasting error. It
// returns that error for the caller of the API.
func judgeRequest(err error) (done bool, _ error) {
	switch storage.KindOf(err) {
	case storage.Precondition, storage.NotFound, storage.Conflict, storage.Ambiguous, storage.Throttled,
		storage.Unavailable:
		return false, err
	}
	if err != nil {
		err = APIError("request", err)
	}
	return true, err
}

// explainUndone returns the error for the caller of the API if the time ended before the change was known to be
// made. It returns other errors unchanged.
func explainUndone(err error) error {
	if !errors.Is(err, rows.ErrUndone) {
		return err
	}
	return &weir.Error{Kind: weir.Unavailable, Op: "request",
		Message:    "storage cannot be reached at the moment, or the lane is too busy; it may have been done: ask again",
		RetryAfter: 2 * time.Second, Err: err}
}

// PauseAfterConflict returns a random pause, which rows.Update makes before it repeats a change. As a rule, another
// process was faster.
func (s *Store) PauseAfterConflict(error) time.Duration { return s.drawPause(conflictPause) }

// raiseRequestSeq sends one transaction of ops that also raises the request number in head. It returns SealedError if
// the lane is sealed.
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

func newNonce() string {
	nonce := make([]byte, weir.NonceSize)
	rand.Read(nonce) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(nonce)
}

// rowETag returns the ETag of the entry's row.
func (e *Entry) rowETag() storage.ETag { return storage.ETag(strings.TrimSpace(e.status.Version)) }
