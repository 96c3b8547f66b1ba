package lane

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/clock"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

const (
	// appendPatience bounds how long one group asks for storage or for its turn at head.
	appendPatience = 5 * time.Second
	// appendTimeout is when the last request ends that was sent within it.
	appendTimeout = 9 * time.Second
	// reloadHeadFor is how long after another's write head is read before it is written.
	reloadHeadFor = 2 * time.Second
	// conflictPause is the longest pause after a lost race for another row, drawn anew each time.
	conflictPause = 20 * time.Millisecond
	// unavailablePause is the pause before storage is asked again that could not answer.
	unavailablePause = 100 * time.Millisecond
)

// batchAppend appends one group: it settles repeats, builds the transaction, and finds out what
// became of it.
type batchAppend struct {
	a       *Appender
	lane    int
	pending *pendingBatch
	group   []*submission

	ops         []storage.Op  // as last sent
	filed       []*submission // whose rows are in ops, in order
	firstSeq    int64         // sequence number of the first of them
	deadline    time.Time
	isHeadFresh bool // head was read since the last copy was sent
}

func (t *batchAppend) appendGroup() {
	store := t.a.store
	t.deadline = store.Now().Add(appendPatience)
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	t.leaveOutAbandoned()
	t.mergeRepeats()
	var err error
	for len(t.group) > 0 && store.Now().Before(t.deadline) {
		if err = t.attemptOnce(ctx); err != nil {
			clock.Sleep(ctx, unavailablePause)
		}
	}
	t.refuseGroup(err)
}

// attemptOnce makes one round: know head, send, see. A nil error with a group still waiting
// asks for another round at once; an error asks for one after a pause.
func (t *batchAppend) attemptOnce(ctx context.Context) error {
	if t.ops == nil {
		if err := t.loadHead(ctx); err != nil {
			return err
		}
		if t.pending.head.IsSealed {
			t.refuseSealed()
			return nil
		}
		if t.leaveOutAbandoned(); len(t.group) == 0 {
			return nil
		}
		t.buildOps()
	}
	began := t.a.store.Now()
	etags, err := t.a.store.Table.Transact(ctx, t.a.store.partitionOf(t.lane), t.ops)
	t.pending.lastDuration = t.a.store.Now().Sub(began)
	switch {
	case err == nil:
		t.answerFiled(Head{ETag: etags[0], Next: t.firstSeq + int64(len(t.filed)),
			RequestSeq: t.pending.head.RequestSeq})
		return nil
	case storage.Is(err, storage.Precondition), storage.Is(err, storage.NotFound):
		// Head's condition failed, whichever operation storage names: no other row has one.
		return t.resolveMovedHead(ctx)
	case storage.Is(err, storage.Conflict):
		return t.answerRepeats(ctx, err)
	case storage.Is(err, storage.Ambiguous):
		return err // sent again unchanged: at most one copy can succeed
	case storage.Is(err, storage.Throttled), storage.Is(err, storage.Unavailable):
		return err
	default:
		t.refuseGroup(err)
		return nil
	}
}

// loadHead reads head if it is not known, or if others have lately written it.
func (t *batchAppend) loadHead(ctx context.Context) error {
	g := t.pending
	if t.isHeadFresh {
		t.isHeadFresh = false
		return nil
	}
	if g.head.ETag != "" && t.a.store.Now().After(g.reloadHeadUntil) {
		return nil
	}
	c, err := t.a.store.ReadControl(ctx, t.lane)
	if err != nil {
		return err
	}
	if g.head.ETag != "" && g.head.ETag != c.Head.ETag {
		g.reloadHeadUntil = t.a.store.Now().Add(reloadHeadFor)
	}
	g.head = c.Head
	return nil
}

// leaveOutAbandoned drops the submissions whose callers are gone or got a 503. No transaction of
// the group is under way at that moment. If it filed them later, messages that were posted again
// meanwhile would be filed twice.
func (t *batchAppend) leaveOutAbandoned() {
	awaited := t.group[:0:0]
	for _, sub := range t.group {
		if sub = sub.firstAwaited(); sub != nil {
			awaited = append(awaited, sub)
		}
	}
	t.group = awaited
}

// firstAwaited returns the first of a submission and its repeats whose caller still waits, with
// the others behind it; nil = no caller waits.
func (sub *submission) firstAwaited() *submission {
	for sub.ctx.Err() != nil {
		sub.sendResult(result{err: errAbandoned(sub.ctx)})
		if len(sub.followers) == 0 {
			return nil
		}
		next := sub.followers[0]
		next.followers = sub.followers[1:]
		sub = next
	}
	return sub
}

// buildOps makes the transaction: head first, then each message's rows.
func (t *batchAppend) buildOps() {
	head := t.pending.head
	t.firstSeq, t.filed = head.Next, t.group
	t.ops = append(t.ops[:0], storage.Op{Kind: storage.Merge, Key: rows.HeadKey, IfMatch: head.ETag,
		Values: rows.Values(rows.NextSeq.Is(head.Next + int64(len(t.group))))})
	now := t.a.store.Now().UTC().Truncate(time.Microsecond)
	for i, sub := range t.group {
		seq := head.Next + int64(i)
		sub.message.AcceptedAt = now
		if !sub.message.DueAt.After(now) {
			sub.message.DueAt = time.Time{} // the past is now
		}
		sub.message.ID = weir.ID{Epoch: t.a.store.Epoch, Lane: t.lane, Seq: seq, Nonce: sub.nonce}
		t.ops = append(t.ops, storage.Op{Kind: storage.Insert, Key: rows.MessageKey(seq), Values: sub.messageValues()})
		if !sub.message.DueAt.IsZero() {
			t.ops = append(t.ops, storage.Op{Kind: storage.Insert,
				Key: dueKey(DueTime{At: sub.message.DueAt, Seq: seq}), Values: map[string]any{}})
		}
		if sub.idempotencyRow != "" {
			t.ops = append(t.ops, storage.Op{Kind: storage.Insert, Key: sub.idempotencyRow, Values: rows.Values(
				rows.Seq.Is(seq), rows.Nonce.Is(sub.nonce), rows.BodyHash.Is(sub.bodyHash))})
		}
	}
}

func (sub *submission) messageValues() map[string]any {
	m := sub.message
	v := rows.Sparse(
		rows.Nonce.Is(sub.nonce), rows.Stage.Is(string(stageOf(&m))), rows.Contract.Is(m.Contract), rows.Key.Is(m.Key), rows.Version.Is(m.Version), rows.Supersede.Is(m.Supersede),
		rows.Skip.Is(m.Skip), rows.ContentType.Is(m.ContentType), rows.TraceParent.Is(m.TraceParent), rows.TraceState.Is(m.TraceState), rows.Callback.Is(m.Callback),
		rows.DueAt.Is(m.DueAt), rows.AcceptedAt.Is(m.AcceptedAt), rows.Size.Is(int64(m.Size)), rows.IdempotencyRow.Is(sub.idempotencyRow),
	)
	for name, value := range sub.columns {
		v[name] = value
	}
	return v
}

// resolveMovedHead finds out who moved head. If it was our own transaction, arrived unnoticed,
// its first row carries our nonce; if not, it can never arrive any more, and the group
// goes on behind what is there now, at once: each further request would make it more likely
// that others are faster again.
func (t *batchAppend) resolveMovedHead(ctx context.Context) error {
	store, g := t.a.store, t.pending
	var c Control
	var filed bool
	var reads errgroup.Group
	reads.Go(func() (err error) { c, err = store.ReadControl(ctx, t.lane); return err })
	reads.Go(func() (err error) { filed, err = t.isFiled(ctx); return err })
	if err := reads.Wait(); err != nil {
		return err // ops stay: asked again, refused again, looked up again
	}
	if filed {
		t.answerFiled(c.Head)
		return nil
	}
	t.ops, g.head, t.isHeadFresh = nil, c.Head, true
	g.reloadHeadUntil = store.Now().Add(reloadHeadFor)
	return nil
}

// isFiled reports whether an earlier copy of the transaction was done after all: its answer was
// lost, and the next copy is refused by head's condition or by the rows that the first one filed,
// whichever storage names.
func (t *batchAppend) isFiled(ctx context.Context) (bool, error) {
	e, err := t.a.store.ReadMessage(ctx, t.lane, t.firstSeq)
	switch {
	case storage.Is(err, storage.NotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	return e.Message.ID.Nonce == t.filed[0].nonce, nil
}

// answerRepeats handles the refusal of an idempotency row: repeats are answered with the
// message that was first, and the rest is tried again.
func (t *batchAppend) answerRepeats(ctx context.Context, cause error) error {
	if filed, err := t.isFiled(ctx); err != nil || filed {
		if err == nil {
			err = t.resolveMovedHead(ctx)
		}
		return err
	}
	found, err := t.readIdempotencyRows(ctx)
	if err != nil {
		return err
	}
	var rest []*submission
	for i, sub := range t.group {
		if found[i] == nil {
			rest = append(rest, sub)
			continue
		}
		t.answerRepeat(ctx, sub, *found[i])
	}
	if len(rest) == len(t.group) {
		// No idempotency row stands in the way, so a message row does: head is not what
		// we think it is.
		t.pending.head = Head{}
		t.ops = nil
		return cause
	}
	t.group, t.ops = rest, nil
	return nil
}

// readIdempotencyRows reads all idempotency rows of the group at once.
func (t *batchAppend) readIdempotencyRows(ctx context.Context) ([]*storage.Row, error) {
	found := make([]*storage.Row, len(t.group))
	errs := make([]error, len(t.group))
	var wg sync.WaitGroup
	for i, sub := range t.group {
		if sub.idempotencyRow == "" {
			continue
		}
		wg.Go(func() {
			row, err := t.a.store.Table.Get(ctx, t.a.store.partitionOf(t.lane), sub.idempotencyRow)
			if err == nil {
				found[i] = &row
			} else if !storage.Is(err, storage.NotFound) {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// answerRepeat answers a submission whose idempotency key is filed already.
func (t *batchAppend) answerRepeat(ctx context.Context, sub *submission, row storage.Row) {
	v := row.Values
	if rows.BodyHash.Of(v) != sub.bodyHash {
		sub.answerAll(result{err: errOtherBody()})
		return
	}
	id := weir.ID{Epoch: t.a.store.Epoch, Lane: t.lane, Seq: rows.Seq.Of(v), Nonce: rows.Nonce.Of(v)}
	st, err := t.a.store.Status(ctx, id)
	if err != nil {
		sub.answerAll(result{err: err})
		return
	}
	sub.answerAll(result{receipt: Receipt{Message: st.Message, Stage: st.Stage, Duplicate: true}})
}

// mergeRepeats answers, in memory, submissions of one gather with equal idempotency keys:
// the first is filed, the others share what comes of it.
func (t *batchAppend) mergeRepeats() {
	firsts := map[string]*submission{}
	var group []*submission
	for _, sub := range t.group {
		first := firsts[sub.idempotencyRow]
		switch {
		case sub.idempotencyRow == "" || first == nil:
			firsts[sub.idempotencyRow] = sub
			group = append(group, sub)
		case first.bodyHash != sub.bodyHash:
			sub.sendResult(result{err: errOtherBody()})
		default:
			first.followers = append(first.followers, sub)
		}
	}
	t.group = group
}

func errOtherBody() error {
	return &weir.Error{Kind: weir.Invalid, Op: "append",
		Message: "this Idempotency-Key was used for another body of the same ordering key"}
}

// answerFiled answers the whole group: it is durable.
func (t *batchAppend) answerFiled(head Head) {
	t.pending.head = head
	if t.a.OnFiled != nil {
		messages := make([]weir.Message, len(t.filed))
		for i, sub := range t.filed {
			messages[i] = sub.message
		}
		t.a.OnFiled(t.lane, messages)
	}
	for _, sub := range t.filed {
		sub.message.Body = nil
		sub.answerAll(result{receipt: Receipt{Message: sub.message, Stage: stageOf(&sub.message)}})
	}
	t.group = nil
}

// refuseSealed answers a group for which there is no room any more.
func (t *batchAppend) refuseSealed() {
	if t.a.OnSealed != nil {
		t.a.OnSealed()
	}
	t.refuseGroup(errSealed("append"))
}

// refuseGroup answers the submissions that are left of the group.
func (t *batchAppend) refuseGroup(cause error) {
	if len(t.group) == 0 {
		return
	}
	t.pending.head = Head{}
	err := errUnavailable("append", cause)
	if cause == nil {
		err = &weir.Error{Kind: weir.Unavailable, Op: "append",
			Message: "too many receivers write this lane at the moment; try again", RetryAfter: time.Second}
	}
	for _, sub := range t.group {
		sub.answerAll(result{err: err})
	}
	t.group = nil
	if cause != nil && weir.KindOf(err) == weir.Unavailable {
		t.a.refuseWaiting(t.pending, err)
	}
}

// answerAll passes a result to the submission and to its repeats in the same gather.
func (sub *submission) answerAll(r result) {
	sub.sendResult(r)
	r.receipt.Duplicate = true
	for _, f := range sub.followers {
		f.sendResult(r)
	}
}
