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
	// appendLimit is when the last request ends that was sent within it.
	appendLimit = 9 * time.Second
	// readFirst is how long after another's write head is read before it is written.
	readFirst = 2 * time.Second
	// conflictPause is the longest pause after a lost race for another row, drawn anew each time.
	conflictPause = 20 * time.Millisecond
	// trialPause is the pause before storage is asked again that could not answer.
	trialPause = 100 * time.Millisecond
)

// try appends one group: it settles repeats, builds the transaction, and finds out what
// became of it.
type try struct {
	a      *Appender
	lane   int
	gather *gather
	group  []*submission

	ops      []storage.Op  // as last sent
	filed    []*submission // whose rows are in ops, in order
	first    int64         // sequence number of the first of them
	deadline time.Time
	fresh    bool // head was read since the last copy was sent
}

func (t *try) run() {
	store := t.a.store
	t.deadline = store.Now().Add(appendPatience)
	ctx, cancel := context.WithTimeout(context.Background(), appendLimit)
	defer cancel()
	t.leaveOutAbandoned()
	t.settleRepeats()
	var err error
	for len(t.group) > 0 && store.Now().Before(t.deadline) {
		if err = t.once(ctx); err != nil {
			clock.Sleep(ctx, trialPause)
		}
	}
	t.fail(err)
}

// once makes one round: know head, send, see. A nil error with a group still waiting
// asks for another round at once; an error asks for one after a pause.
func (t *try) once(ctx context.Context) error {
	if t.ops == nil {
		if err := t.knowHead(ctx); err != nil {
			return err
		}
		if t.gather.head.IsSealed {
			t.sealed()
			return nil
		}
		if t.leaveOutAbandoned(); len(t.group) == 0 {
			return nil
		}
		t.build()
	}
	began := t.a.store.Now()
	etags, err := t.a.store.Table.Transact(ctx, t.a.store.partition(t.lane), t.ops)
	t.gather.took = t.a.store.Now().Sub(began)
	switch {
	case err == nil:
		t.succeed(Head{ETag: etags[0], Next: t.first + int64(len(t.filed)), RequestSeq: t.gather.head.RequestSeq})
		return nil
	case storage.Is(err, storage.Precondition), storage.Is(err, storage.NotFound):
		// Head's condition failed, whichever operation storage names: no other row has one.
		return t.headMoved(ctx)
	case storage.Is(err, storage.Conflict):
		return t.repeatsFiled(ctx, err)
	case storage.Is(err, storage.Ambiguous):
		return err // sent again unchanged: at most one copy can succeed
	case storage.Is(err, storage.Throttled), storage.Is(err, storage.Unavailable):
		return err
	default:
		t.fail(err)
		return nil
	}
}

// knowHead reads head if it is not known, or if others have lately written it.
func (t *try) knowHead(ctx context.Context) error {
	g := t.gather
	if t.fresh {
		t.fresh = false
		return nil
	}
	if g.head.ETag != "" && t.a.store.Now().After(g.careful) {
		return nil
	}
	c, err := t.a.store.ReadControl(ctx, t.lane)
	if err != nil {
		return err
	}
	if g.head.ETag != "" && g.head.ETag != c.Head.ETag {
		g.careful = t.a.store.Now().Add(readFirst)
	}
	g.head = c.Head
	return nil
}

// leaveOutAbandoned drops the submissions whose callers are gone or got a 503. No transaction of
// the group is under way at that moment. If it filed them later, messages that were posted again
// meanwhile would be filed twice.
func (t *try) leaveOutAbandoned() {
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
		sub.finish(result{err: errAbandoned(sub.ctx)})
		if len(sub.followers) == 0 {
			return nil
		}
		next := sub.followers[0]
		next.followers = sub.followers[1:]
		sub = next
	}
	return sub
}

// build makes the transaction: head first, then each message's rows.
func (t *try) build() {
	head := t.gather.head
	t.first, t.filed = head.Next, t.group
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
			t.ops = append(t.ops, storage.Op{Kind: storage.Insert, Key: dueKey(DueTime{At: sub.message.DueAt, Seq: seq}), Values: map[string]any{}})
		}
		if sub.idem != "" {
			t.ops = append(t.ops, storage.Op{Kind: storage.Insert, Key: sub.idem, Values: rows.Values(
				rows.Seq.Is(seq), rows.Nonce.Is(sub.nonce), rows.BodyHash.Is(sub.bodyHash))})
		}
	}
}

func (sub *submission) messageValues() map[string]any {
	m := sub.message
	v := rows.Sparse(
		rows.Nonce.Is(sub.nonce), rows.Stage.Is(string(stageOf(&m))), rows.Contract.Is(m.Contract), rows.Key.Is(m.Key), rows.Version.Is(m.Version), rows.Supersede.Is(m.Supersede),
		rows.Skip.Is(m.Skip), rows.ContentType.Is(m.ContentType), rows.TraceParent.Is(m.TraceParent), rows.TraceState.Is(m.TraceState), rows.Callback.Is(m.Callback),
		rows.DueAt.Is(m.DueAt), rows.AcceptedAt.Is(m.AcceptedAt), rows.Size.Is(int64(m.Size)), rows.IdempotencyRow.Is(sub.idem),
	)
	for name, value := range sub.columns {
		v[name] = value
	}
	return v
}

// headMoved finds out who moved head. If it was our own transaction, arrived unnoticed,
// its first row carries our nonce; if not, it can never arrive any more, and the group
// goes on behind what is there now, at once: each further request would make it more likely
// that others are faster again.
func (t *try) headMoved(ctx context.Context) error {
	store, g := t.a.store, t.gather
	var c Control
	var filed bool
	var reads errgroup.Group
	reads.Go(func() (err error) { c, err = store.ReadControl(ctx, t.lane); return err })
	reads.Go(func() (err error) { filed, err = t.isFiled(ctx); return err })
	if err := reads.Wait(); err != nil {
		return err // ops stay: asked again, refused again, looked up again
	}
	if filed {
		t.succeed(c.Head)
		return nil
	}
	t.ops, g.head, t.fresh = nil, c.Head, true
	g.careful = store.Now().Add(readFirst)
	return nil
}

// isFiled reports whether an earlier copy of the transaction was done after all: its answer was
// lost, and the next copy is refused by head's condition or by the rows that the first one filed,
// whichever storage names.
func (t *try) isFiled(ctx context.Context) (bool, error) {
	e, err := t.a.store.ReadMessage(ctx, t.lane, t.first)
	switch {
	case storage.Is(err, storage.NotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	return e.Message.ID.Nonce == t.filed[0].nonce, nil
}

// repeatsFiled handles the refusal of an idempotency row: repeats are answered with the
// message that was first, and the rest is tried again.
func (t *try) repeatsFiled(ctx context.Context, cause error) error {
	if filed, err := t.isFiled(ctx); err != nil || filed {
		if err == nil {
			err = t.headMoved(ctx)
		}
		return err
	}
	found, err := t.lookUp(ctx)
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
		t.gather.head = Head{}
		t.ops = nil
		return cause
	}
	t.group, t.ops = rest, nil
	return nil
}

// lookUp reads all idempotency rows of the group at once.
func (t *try) lookUp(ctx context.Context) ([]*storage.Row, error) {
	found := make([]*storage.Row, len(t.group))
	errs := make([]error, len(t.group))
	var wg sync.WaitGroup
	for i, sub := range t.group {
		if sub.idem == "" {
			continue
		}
		wg.Go(func() {
			row, err := t.a.store.Table.Get(ctx, t.a.store.partition(t.lane), sub.idem)
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
func (t *try) answerRepeat(ctx context.Context, sub *submission, row storage.Row) {
	v := row.Values
	if rows.BodyHash.Of(v) != sub.bodyHash {
		sub.answer(result{err: errOtherBody()})
		return
	}
	id := weir.ID{Epoch: t.a.store.Epoch, Lane: t.lane, Seq: rows.Seq.Of(v), Nonce: rows.Nonce.Of(v)}
	st, err := t.a.store.Status(ctx, id)
	if err != nil {
		sub.answer(result{err: err})
		return
	}
	sub.answer(result{receipt: Receipt{Message: st.Message, Stage: st.Stage, Duplicate: true}})
}

// settleRepeats answers, in memory, submissions of one gather with equal idempotency keys:
// the first is filed, the others share what comes of it.
func (t *try) settleRepeats() {
	firsts := map[string]*submission{}
	var group []*submission
	for _, sub := range t.group {
		first := firsts[sub.idem]
		switch {
		case sub.idem == "" || first == nil:
			firsts[sub.idem] = sub
			group = append(group, sub)
		case first.bodyHash != sub.bodyHash:
			sub.finish(result{err: errOtherBody()})
		default:
			first.followers = append(first.followers, sub)
		}
	}
	t.group = group
}

func errOtherBody() error {
	return &weir.Error{Kind: weir.Invalid, Op: "append", Message: "this Idempotency-Key was used for another body of the same ordering key"}
}

// succeed answers the whole group: it is durable.
func (t *try) succeed(head Head) {
	t.gather.head = head
	if t.a.OnFiled != nil {
		messages := make([]weir.Message, len(t.filed))
		for i, sub := range t.filed {
			messages[i] = sub.message
		}
		t.a.OnFiled(t.lane, messages)
	}
	for _, sub := range t.filed {
		sub.message.Body = nil
		sub.answer(result{receipt: Receipt{Message: sub.message, Stage: stageOf(&sub.message)}})
	}
	t.group = nil
}

// sealed answers a group for which there is no room any more.
func (t *try) sealed() {
	if t.a.OnSealed != nil {
		t.a.OnSealed()
	}
	t.fail(errSealed("append"))
}

// fail answers what is left of the group.
func (t *try) fail(cause error) {
	if len(t.group) == 0 {
		return
	}
	t.gather.head = Head{}
	err := unavailable("append", cause)
	if cause == nil {
		err = &weir.Error{Kind: weir.Unavailable, Op: "append", Message: "too many receivers write this lane at the moment; try again", RetryAfter: time.Second}
	}
	for _, sub := range t.group {
		sub.answer(result{err: err})
	}
	t.group = nil
	if cause != nil && weir.KindOf(err) == weir.Unavailable {
		t.a.refuseWaiting(t.gather, err)
	}
}

// answer passes a result to the submission and to its repeats in the same gather.
func (sub *submission) answer(r result) {
	sub.finish(r)
	r.receipt.Duplicate = true
	for _, f := range sub.followers {
		f.finish(r)
	}
}
