package lane

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/clock"
	"weir/internal/lane/rows"
	"weir/internal/panics"
	"weir/internal/storage"
	"weir/internal/weir"
)

const (
	// appendPatience is how long the appender tries to write a group. Storage may be unavailable,
	// or other processes may change head before each try.
	appendPatience = 5 * time.Second
	// appendTimeout limits the requests for a group. It is longer than appendPatience, so that a
	// request that is sent shortly before the end of appendPatience can still succeed.
	appendTimeout = 9 * time.Second
	// reloadHeadFor is how long the appender reads head before each write, after another process
	// has written head.
	reloadHeadFor = 2 * time.Second
	// conflictPause is the longest delay before a request, an erasure or an operator's pause is
	// written again. Usually the first write failed because another process has written head. Each
	// delay is random.
	conflictPause = 20 * time.Millisecond
	// unavailablePause is the delay after a failed attempt to write a group.
	unavailablePause = 100 * time.Millisecond
)

// appendTransaction appends one group of submissions. It answers repeats, sends the transaction,
// and finds out whether the transaction was done.
type appendTransaction struct {
	a       *Appender
	lane    int
	pending *pendingAppends
	group   []*submission

	// operations of the transaction, which may be in flight; nil = not built yet
	ops         []storage.Op
	filed       []*submission // the submissions whose messages ops insert, in order
	firstSeq    int64         // sequence number of the first submission in filed
	deadline    time.Time
	isHeadFresh bool // head was read after the last transaction was sent
	isUnknown   bool // a transaction with ops was sent, and it is not known whether it was done
}

func (t *appendTransaction) appendGroup() {
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

// attemptOnce reads head if necessary, sends the transaction and handles its result. After an error
// the caller must pause before the next attempt.
func (t *appendTransaction) attemptOnce(ctx context.Context) error {
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
	etags, err := t.a.store.Table.Transact(ctx, t.a.store.Partition(t.lane), t.ops)
	t.pending.lastDuration = t.a.store.Now().Sub(began)
	switch {
	case err == nil:
		t.answerFiled(Head{ETag: etags[0], Next: t.firstSeq + int64(len(t.filed)),
			RequestSeq: t.pending.head.RequestSeq})
		return nil

	case storage.Is(err, storage.Precondition), storage.Is(err, storage.NotFound):
		// The operation on head has failed, even if storage names another operation: no other
		// operation has a condition.
		return t.resolveMovedHead(ctx)

	case storage.Is(err, storage.Conflict):
		return t.answerRepeats(ctx, err)
	case storage.Is(err, storage.Ambiguous):
		t.isUnknown = true
		return err // sent again unchanged: at most one copy can succeed
	case storage.Is(err, storage.Throttled), storage.Is(err, storage.Unavailable):
		return err
	default:
		t.isUnknown = t.isUnknown || !storage.Is(err, storage.TooLarge)
		t.refuseGroup(err)
		return nil
	}
}

// loadHead reads head if head is not known, or if another process has written head lately.
func (t *appendTransaction) loadHead(ctx context.Context) error {
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

// leaveOutAbandoned drops the submissions whose callers have given up. Do not call it while a
// transaction of the group is in flight: the transaction could still append a dropped message.
func (t *appendTransaction) leaveOutAbandoned() {
	awaited := t.group[:0:0]
	for _, sub := range t.group {
		if sub = sub.firstAwaited(); sub != nil {
			awaited = append(awaited, sub)
		}
	}

	t.group = awaited
}

// firstAwaited returns the first submission whose caller still waits: sub or one of its followers
// (see mergeRepeats). The later followers become followers of the returned submission. The earlier
// submissions get an error. If no caller waits, firstAwaited returns nil.
func (sub *submission) firstAwaited() *submission {
	for sub.ctx.Err() != nil {
		sub.sendResult(result{err: markNotAppended(errAbandoned(sub.ctx))})
		if len(sub.followers) == 0 {
			return nil
		}

		next := sub.followers[0]
		next.followers = sub.followers[1:]
		sub = next
	}

	return sub
}

// buildOps builds the transaction: first the operation on head, then the rows of each message.
func (t *appendTransaction) buildOps() {
	head := t.pending.head
	t.firstSeq, t.filed = head.Next, t.group
	t.ops = append(t.ops[:0], storage.Op{Kind: storage.Merge, Key: rows.HeadKey, IfMatch: head.ETag,
		Values: rows.Values(rows.NextSeq.Is(head.Next + int64(len(t.group))))})
	now := t.a.store.Now().UTC().Truncate(time.Microsecond)
	for i, sub := range t.group {
		seq := head.Next + int64(i)
		sub.message.AcceptedAt = now
		if !sub.message.DueAt.After(now) {
			sub.message.DueAt = time.Time{} // a due time in the past means now
		}

		sub.message.ID = weir.ID{Epoch: t.a.store.Epoch, Lane: t.lane, Seq: seq, Nonce: sub.nonce}
		t.ops = append(t.ops, storage.Op{Kind: storage.Insert, Key: rows.MessageKey(seq),
			Values: sub.messageValues()})

		if !sub.message.DueAt.IsZero() {
			t.ops = append(t.ops, scheduleOp(DueTime{At: sub.message.DueAt, Seq: seq},
				t.a.store.KeyHash(sub.message.Key)))
		}

		if sub.idempotencyRow != "" {
			t.ops = append(t.ops,
				storage.Op{Kind: storage.Insert, Key: sub.idempotencyRow, Values: rows.Values(
					rows.Seq.Is(seq), rows.Nonce.Is(sub.nonce), rows.BodyHash.Is(sub.bodyHash))})
		}
	}
}

func (sub *submission) messageValues() map[string]any {
	m := sub.message
	v := rows.Sparse(
		rows.Nonce.Is(sub.nonce), rows.Stage.Is(string(stageOf(&m))), rows.Contract.Is(m.Contract),
		rows.Key.Is(m.Key),
		rows.Version.Is(m.Version), rows.Supersede.Is(m.Supersede),
		rows.Skip.Is(m.Skip), rows.ContentType.Is(m.ContentType),
		rows.TraceParent.Is(m.TraceParent),
		rows.TraceState.Is(m.TraceState), rows.Callback.Is(m.Callback), rows.Batch.Is(m.Batch),
		rows.BatchPart.Is(int64(m.BatchPart)), rows.Upstream.Is(m.Upstream),
		rows.DueAt.Is(m.DueAt), rows.AcceptedAt.Is(m.AcceptedAt), rows.Size.Is(int64(m.Size)),
		rows.IdempotencyRow.Is(sub.idempotencyRow),
	)

	for name, value := range sub.columns {
		v[name] = value
	}

	return v
}

// resolveMovedHead is called if storage refused the transaction because head has changed. If an
// earlier try of the same transaction has changed head, the group was appended already, and
// resolveMovedHead answers the group. Otherwise another process has changed head, and no try of
// this transaction can succeed any more. Then the next attempt builds a new transaction from the
// new head. That attempt does not read head again: during a further read, another process could
// write head.
func (t *appendTransaction) resolveMovedHead(ctx context.Context) error {
	store, g := t.a.store, t.pending
	var c Control
	var filed bool
	var reads errgroup.Group
	reads.Go(panics.Guard(func() (err error) { c, err = store.ReadControl(ctx, t.lane); return err }))
	reads.Go(panics.Guard(func() (err error) { filed, err = t.isFiled(ctx); return err }))

	if err := reads.Wait(); err != nil {
		// ops stay: the next attempt fails on head's condition, too, and comes here again
		return err
	}

	if filed {
		t.answerFiled(c.Head)
		return nil
	}

	t.ops, t.isUnknown, g.head, t.isHeadFresh = nil, false, c.Head, true
	g.reloadHeadUntil = store.Now().Add(reloadHeadFor)

	return nil
}

// isFiled reports whether an earlier try of the transaction succeeded, although its answer was
// lost. In that case the first message's row has the nonce of the first submission.
func (t *appendTransaction) isFiled(ctx context.Context) (bool, error) {
	e, err := t.a.store.ReadMessage(ctx, t.lane, t.firstSeq)
	switch {
	case storage.Is(err, storage.NotFound):
		return false, nil
	case err != nil:
		return false, err
	}

	return e.Message.ID.Nonce == t.filed[0].nonce, nil
}

// answerRepeats is called if an insert failed because the row exists. It answers each repeat of an
// earlier message with that message. The other submissions stay in the group for the next attempt.
func (t *appendTransaction) answerRepeats(ctx context.Context, cause error) error {
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
	var answers sync.WaitGroup
	for i, sub := range t.group {
		if found[i] == nil {
			rest = append(rest, sub)
			continue
		}

		answers.Go(func() {
			err := panics.Catch(func() error { t.answerRepeat(ctx, sub, *found[i]); return nil })
			if err != nil {
				sub.answerAll(result{err: APIError("append", err)})
			}
		})
	}

	answers.Wait()

	if len(rest) == len(t.group) {
		// No submission of the group has an idempotency row in storage. So the row of a message
		// exists already: the known head is out of date.
		t.pending.head = Head{}
		t.ops, t.isUnknown = nil, false
		return cause
	}

	t.group, t.ops, t.isUnknown = rest, nil, false

	return nil
}

// readIdempotencyRows reads the idempotency row of each submission of the group, in parallel; nil =
// there is no such row.
func (t *appendTransaction) readIdempotencyRows(ctx context.Context) ([]*storage.Row, error) {
	found := make([]*storage.Row, len(t.group))
	errs := make([]error, len(t.group))
	var wg sync.WaitGroup
	for i, sub := range t.group {
		if sub.idempotencyRow == "" {
			continue
		}

		wg.Go(func() {
			err := panics.Catch(func() error {
				row, err := t.a.store.Table.Get(ctx, t.a.store.Partition(t.lane),
					sub.idempotencyRow)
				if err == nil {
					found[i] = &row
				}
				return err
			})
			if err != nil && !storage.Is(err, storage.NotFound) {
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

// answerRepeat answers a submission and its followers if their idempotency key was used earlier.
// row is the idempotency row of the earlier message.
func (t *appendTransaction) answerRepeat(ctx context.Context, sub *submission, row storage.Row) {
	v := row.Values
	if !hasSameBody(v, sub.bodyHash) {
		sub.answerAll(result{err: errOtherBody()})
		return
	}

	id := weir.ID{Epoch: t.a.store.Epoch, Lane: t.lane, Seq: rows.Seq.Of(v),
		Nonce: rows.Nonce.Of(v)}
	st, err := t.a.store.Messages().Status(ctx, id)
	if err != nil {
		sub.answerAll(result{err: err})
		return
	}

	sub.answerAll(result{receipt: Receipt{Message: st.Message, Stage: st.Stage, Duplicate: true}})
}

// mergeRepeats keeps the first submission with each idempotency key. The repeats of this submission
// become its followers: they get its result. mergeRepeats refuses a repeat that has another body.
func (t *appendTransaction) mergeRepeats() {
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

// answerFiled answers all submissions of the group after the transaction was done. head is the new
// head.
func (t *appendTransaction) answerFiled(head Head) {
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

func (t *appendTransaction) refuseSealed() {
	if t.a.OnSealed != nil {
		t.a.OnSealed()
	}
	t.refuseGroup(SealedError("append"))
}

// refuseGroup refuses the submissions that are left in the group. If cause is nil, other processes
// have changed head before each try.
func (t *appendTransaction) refuseGroup(cause error) {
	if len(t.group) == 0 {
		return
	}

	t.pending.head = Head{}
	refused, err := t.group, APIError("append", cause)
	var unsent []*submission
	t.group = nil
	switch {
	case cause == nil:
		err = &weir.Error{Kind: weir.Unavailable, Op: "append",
			Message:    "too many receivers write this lane at the moment; try again",
			RetryAfter: time.Second}

	case weir.KindOf(err) == weir.Unavailable:
		// The submissions that wait for the next group are refused, too. They must be taken before
		// the first answer is sent. Otherwise a message that is posted after that answer would be
		// refused, too.
		unsent = t.a.takeWaiting(t.pending)
	}

	ofGroup := err
	if !t.isUnknown {
		ofGroup = markNotAppended(err)
	}

	for _, sub := range refused {
		sub.answerAll(result{err: ofGroup})
	}

	for _, sub := range unsent {
		sub.answerAll(result{err: markNotAppended(err)})
	}
}

// refuseAfterPanic refuses the submissions that have no answer yet. Their messages may be stored.
func (t *appendTransaction) refuseAfterPanic(cause error) {
	t.pending.head = Head{}
	err := &weir.Error{Kind: weir.Unavailable, Op: "append",
		Message: "an internal error; the message may have been filed", RetryAfter: time.Second,
		Err: cause}
	for _, sub := range t.group {
		sub.answerAll(result{err: err})
	}

	t.group = nil
}

// answerAll sends a result to the submission and to its followers. For a follower the receipt is
// marked as a duplicate.
func (sub *submission) answerAll(r result) {
	sub.sendResult(r)
	r.receipt.Duplicate = true
	for _, f := range sub.followers {
		f.sendResult(r)
	}
}
