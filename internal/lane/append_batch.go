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
	// appendPatience is how long a group tries to reach storage and to win the race for head.
	appendPatience = 5 * time.Second
	// appendTimeout limits all requests of a group. It is longer than appendPatience, so that a request sent near
	// the end of appendPatience can still succeed.
	appendTimeout = 9 * time.Second
	// reloadHeadFor is a time span: after another process has written head, the flusher reads head before each write
	// for this long.
	reloadHeadFor = 2 * time.Second
	// conflictPause is the longest wait before the write of a request, an operator's pause or an erasure is repeated.
	// As a rule the write failed because another process has written head first. Each wait is random.
	conflictPause = 20 * time.Millisecond
	// unavailablePause is the pause after an attempt that has failed. As a rule storage was unavailable.
	unavailablePause = 100 * time.Millisecond
)

// batchAppend files one group: it answers repeats, sends the transaction, and finds out whether it was done.
type batchAppend struct {
	a       *Appender
	lane    int
	pending *pendingBatch
	group   []*submission

	ops         []storage.Op  // operations of the transaction that may be in flight; nil = they are still to be built
	filed       []*submission // the submissions that ops insert, in order
	firstSeq    int64         // sequence number of the first submission in filed
	deadline    time.Time
	isHeadFresh bool // head was read after the last transaction was sent
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

// attemptOnce reads head if necessary, sends the transaction and handles its result. If it returns nil, the
// caller continues at once with the submissions that are left; after an error it pauses first.
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
	etags, err := t.a.store.Table.Transact(ctx, t.a.store.Partition(t.lane), t.ops)
	t.pending.lastDuration = t.a.store.Now().Sub(began)
	switch {
	case err == nil:
		t.answerFiled(Head{ETag: etags[0], Next: t.firstSeq + int64(len(t.filed)),
			RequestSeq: t.pending.head.RequestSeq})
		return nil
	case storage.Is(err, storage.Precondition), storage.Is(err, storage.NotFound):
		// Only head's operation has a condition, so it has failed, whichever operation storage names.
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

// loadHead reads head if it is not known, or if another process has written it lately.
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

// leaveOutAbandoned drops the submissions whose contexts have ended. It runs only while no transaction of the group
// is in flight. Otherwise a message could be filed twice if it was posted again in the meantime.
func (t *batchAppend) leaveOutAbandoned() {
	awaited := t.group[:0:0]
	for _, sub := range t.group {
		if sub = sub.firstAwaited(); sub != nil {
			awaited = append(awaited, sub)
		}
	}
	t.group = awaited
}

// firstAwaited goes through a submission and its repeats, and returns the first one whose caller still waits. The
// repeats after that one become its followers; the submissions before it are answered. If no caller waits,
// firstAwaited answers all of them and returns nil.
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

// buildOps builds the transaction: head's operation, then the rows of each message.
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
			sub.message.DueAt = time.Time{} // a due time in the past means now
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
		rows.Nonce.Is(sub.nonce), rows.Stage.Is(string(stageOf(&m))), rows.Contract.Is(m.Contract), rows.Key.Is(m.Key),
		rows.Version.Is(m.Version), rows.Supersede.Is(m.Supersede),
		rows.Skip.Is(m.Skip), rows.ContentType.Is(m.ContentType), rows.TraceParent.Is(m.TraceParent),
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

// resolveMovedHead handles a failed condition on head. If an earlier copy of our transaction has moved head,
// the first row has our nonce, and the group is filed. Otherwise no copy can be done any more, and the group is
// built again on the new head. The next attempt follows at once: with each further request to storage, another process
// would be more likely to win again.
func (t *batchAppend) resolveMovedHead(ctx context.Context) error {
	store, g := t.a.store, t.pending
	var c Control
	var filed bool
	var reads errgroup.Group
	reads.Go(func() (err error) { c, err = store.ReadControl(ctx, t.lane); return err })
	reads.Go(func() (err error) { filed, err = t.isFiled(ctx); return err })
	if err := reads.Wait(); err != nil {
		return err // ops stay: the next attempt sends them again, fails on head's condition again, and reads again
	}
	if filed {
		t.answerFiled(c.Head)
		return nil
	}
	t.ops, g.head, t.isHeadFresh = nil, c.Head, true
	g.reloadHeadUntil = store.Now().Add(reloadHeadFor)
	return nil
}

// isFiled reports whether an earlier copy of the transaction was done although its answer was lost. Storage
// then refuses the next copy because of head's condition, or because the rows exist.
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

// answerRepeats handles an insert that failed because the row exists. It answers repeats with the earlier message,
// and leaves the other submissions for the next attempt.
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
		// None of the idempotency rows exists, so a message row does: the known head is out of date.
		t.pending.head = Head{}
		t.ops = nil
		return cause
	}
	t.group, t.ops = rest, nil
	return nil
}

// readIdempotencyRows reads all idempotency rows of the group in parallel.
func (t *batchAppend) readIdempotencyRows(ctx context.Context) ([]*storage.Row, error) {
	found := make([]*storage.Row, len(t.group))
	errs := make([]error, len(t.group))
	var wg sync.WaitGroup
	for i, sub := range t.group {
		if sub.idempotencyRow == "" {
			continue
		}
		wg.Go(func() {
			row, err := t.a.store.Table.Get(ctx, t.a.store.Partition(t.lane), sub.idempotencyRow)
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

// answerRepeat answers a submission and its repeats if row shows that their idempotency key was used earlier.
func (t *batchAppend) answerRepeat(ctx context.Context, sub *submission, row storage.Row) {
	v := row.Values
	if !hasSameBody(v, sub.bodyHash) {
		sub.answerAll(result{err: errOtherBody()})
		return
	}
	id := weir.ID{Epoch: t.a.store.Epoch, Lane: t.lane, Seq: rows.Seq.Of(v), Nonce: rows.Nonce.Of(v)}
	st, err := t.a.store.Messages().Status(ctx, id)
	if err != nil {
		sub.answerAll(result{err: err})
		return
	}
	sub.answerAll(result{receipt: Receipt{Message: st.Message, Stage: st.Stage, Duplicate: true}})
}

// mergeRepeats joins the submissions of a group that have the same idempotency key: the first is filed, and the
// others get its result. A submission with another body than the first is refused.
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

// answerFiled answers all submissions of the group after the transaction was done.
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

// refuseSealed refuses the group because the lane is sealed.
func (t *batchAppend) refuseSealed() {
	if t.a.OnSealed != nil {
		t.a.OnSealed()
	}
	t.refuseGroup(SealedError("append"))
}

// refuseGroup refuses the remaining submissions of the group.
func (t *batchAppend) refuseGroup(cause error) {
	if len(t.group) == 0 {
		return
	}
	t.pending.head = Head{}
	refused, err := t.group, APIError("append", cause)
	t.group = nil
	switch {
	case cause == nil:
		err = &weir.Error{Kind: weir.Unavailable, Op: "append",
			Message: "too many receivers write this lane at the moment; try again", RetryAfter: time.Second}
	case weir.KindOf(err) == weir.Unavailable:
		// takeWaiting comes before the first answer: messages that are posted after an answer must not be refused here.
		refused = append(refused, t.a.takeWaiting(t.pending)...)
	}
	for _, sub := range refused {
		sub.answerAll(result{err: err})
	}
}

// answerAll sends a result to the submission and to its repeats in the same group. The repeats get it as a duplicate.
func (sub *submission) answerAll(r result) {
	sub.sendResult(r)
	r.receipt.Duplicate = true
	for _, f := range sub.followers {
		f.sendResult(r)
	}
}
