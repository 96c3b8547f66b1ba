package lane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/clock"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Receipt has the message as it was filed.
type Receipt struct {
	Message   weir.Message // with its ID; without body
	Stage     weir.Stage
	Duplicate bool // it is one message with an earlier submission
}

// Appender files messages. While one transaction of a lane is in flight, arriving
// messages gather; the next takes them all. So a lane alone has the latency of one
// transaction, and a burst shares them, without a timer. Safe for concurrent use.
type Appender struct {
	// OnFiled, if set, is called with each group as soon as it is durable and before its
	// submissions are answered. The messages are in the order of the log and have their bodies.
	// OnFiled must return at once. Set it before the first Append.
	OnFiled func(lane int, messages []weir.Message)

	// OnWake, if set, is called after OnFiled, for each message: when Append returns, or when a
	// message becomes durable after its caller gave up. It must return at once. Set it before the
	// first Append.
	OnWake func(lane int)

	// OnSealed, if set, is called when an append finds that its lane is sealed. It must return at
	// once. Set it before the first Append.
	OnSealed func()

	store *Store
	log   *slog.Logger
	held  atomic.Int64 // bytes of the submissions without an answer

	mu    sync.Mutex
	lanes map[int]*pendingBatch
}

// pendingBatch has the submissions of one lane that this process is about to append.
type pendingBatch struct {
	waiting         []*submission
	isFlushing      bool
	head            Head          // as last seen; zero = not known
	lastDuration    time.Duration // by its last transaction
	busySince       time.Time     // when it began to be written without a break
	reloadHeadUntil time.Time     // until then, read head before each try: others write it too
}

// submission is one message on its way into the log.
type submission struct {
	ctx            context.Context
	message        weir.Message
	idempotencyRow string // row key of its idempotency key; empty = none
	bodyHash       string
	nonce          string
	columns        map[string]any // of its body
	size           int            // bytes it adds to a transaction, about
	weight         int64          // bytes it keeps in memory, about
	held           *atomic.Int64  // the Appender's, of which weight is a part until it is answered
	done           chan result

	followers []*submission // repeats of it in the same gather
}

type result struct {
	receipt Receipt
	err     error
}

// NewAppender makes an Appender over a store.
func NewAppender(s *Store, log *slog.Logger) *Appender {
	return &Appender{store: s, log: log, lanes: map[int]*pendingBatch{}}
}

// Append files a message under its key's lane and returns when it is durable. The same
// idempotency key (scope: the ordering key) with the same body names the earlier message;
// with another body it is Invalid. An Unavailable error means that it may or may not have
// been filed. When ctx ends early the message may still be filed, unless nothing of it was
// sent by then.
func (a *Appender) Append(ctx context.Context, m weir.Message, idempotencyKey string) (Receipt, error) {
	r, err := a.AppendWithoutWake(ctx, m, idempotencyKey)
	if err == nil && !r.Duplicate {
		a.wakeLane(r.Message.ID.Lane)
	}
	return r, err
}

// AppendWithoutWake is Append for a receiver, who calls Wake itself once it has answered: on few cores, the
// delivery would take one of them from the answer.
func (a *Appender) AppendWithoutWake(ctx context.Context, m weir.Message, idempotencyKey string) (Receipt, error) {
	if r, found, err := a.store.findRepeat(ctx, m, idempotencyKey); found || err != nil {
		return r, err
	}
	sub := &submission{ctx: ctx, message: m, nonce: newNonce(), held: &a.held, done: make(chan result, 1)}
	if err := sub.reserveMemory(); err != nil {
		return Receipt{}, err
	}
	lane, err := a.prepareSubmission(ctx, sub, idempotencyKey)
	if err != nil {
		sub.sendResult(result{err: err})
		return Receipt{}, err
	}
	a.addToPending(lane, sub)
	select {
	case r := <-sub.done:
		if r.err == nil && !r.receipt.Duplicate {
			a.markBody(sub)
		}
		return r.receipt, r.err
	case <-ctx.Done():
		go a.wakeFor(lane, sub)
		return Receipt{}, errAbandoned(ctx)
	}
}

// wakeFor wakes the lane if a submission is filed whose caller is gone.
func (a *Appender) wakeFor(lane int, sub *submission) {
	if r := <-sub.done; r.err == nil {
		a.wakeLane(lane)
	}
}

func (a *Appender) wakeLane(lane int) {
	if a.OnWake != nil {
		a.OnWake(lane)
	}
}

func errAbandoned(ctx context.Context) error {
	return &weir.Error{Kind: weir.Unavailable, Op: "append",
		Message: "gave up waiting for storage; the message may have been filed", RetryAfter: time.Second, Err: context.Cause(ctx)}
}

// maxHeldBytes bounds the memory of all submissions that wait for storage: without it the line in
// front of storage that hangs would grow with every post.
const maxHeldBytes = 64 << 20

// submissionOverhead is the memory of a submission beside its body.
const submissionOverhead = 4 << 10

// reserveMemory takes the submission's share of memory, unless too much of it is taken.
func (sub *submission) reserveMemory() error {
	sub.weight = int64(len(sub.message.Body)) + submissionOverhead
	if held := sub.held.Add(sub.weight); held > maxHeldBytes && held > sub.weight {
		sub.held.Add(-sub.weight)
		return &weir.Error{Kind: weir.Unavailable, Op: "append",
			Message: "too many messages wait for storage at the moment; try again", RetryAfter: 5 * time.Second}
	}
	return nil
}

// sendResult answers the submission, once.
func (sub *submission) sendResult(r result) {
	sub.held.Add(-sub.weight)
	sub.done <- r
}

// prepareSubmission completes the submission, except for its sequence number, and returns its lane.
func (a *Appender) prepareSubmission(ctx context.Context, sub *submission, idempotencyKey string) (int, error) {
	m := &sub.message
	lane := Of(m.Key, a.store.Lanes)
	if idempotencyKey != "" {
		bodySum := sha256.Sum256(m.Body)
		sub.idempotencyRow, sub.bodyHash = idempotencyKeyRow(m.Key, idempotencyKey), hex.EncodeToString(bodySum[:])
	}
	var err error
	sub.columns, err = a.store.storeBody(ctx, m.Body, blobName(a.store.Now(), a.store.partitionOf(lane), sub.nonce),
		acceptedBody)
	if err != nil {
		return 0, errUnavailable("append: store body", err)
	}
	inline := rows.Body.Of(sub.columns)
	// Base64 makes 4 bytes of 3; names, annotations and headers of a row are under 2 KiB.
	sub.size = len(inline)*4/3 + 6*(len(m.Key)+len(m.Callback)) + 2048
	m.Size = len(m.Body)
	if !m.DueAt.IsZero() {
		m.DueAt = RoundDueTime(m.DueAt)
	}
	return lane, nil
}

// addToPending adds to the lane's gather, and starts the lane's flusher if none is at work.
func (a *Appender) addToPending(lane int, sub *submission) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.lanes[lane]
	if g == nil {
		g = &pendingBatch{}
		a.lanes[lane] = g
	}
	g.waiting = append(g.waiting, sub)
	if !g.isFlushing {
		g.isFlushing = true
		go a.flushPending(lane, g)
	}
}

// flushPending appends group after group until nothing waits.
func (a *Appender) flushPending(lane int, g *pendingBatch) {
	g.busySince = a.store.Now()
	for {
		group := a.takeGroup(g)
		if group == nil {
			return
		}
		t := &batchAppend{a: a, lane: lane, pending: g, group: group}
		t.appendGroup()
		a.letOthersWrite(g)
	}
}

const (
	// maxBusyTime is how long a lane is written without a break.
	maxBusyTime = 2 * time.Second
	// breakTransactions is how long a break is, in transactions: whoever has lost head reads it and
	// writes it meanwhile.
	breakTransactions = 2
	// maxBreak bounds a break if storage has taken its time.
	maxBreak = 500 * time.Millisecond
)

// letOthersWrite makes a break now and then if more waits in this lane, and a short one after each
// transaction while others write it. A receiver that writes without a break knows head by its
// own writes; others, who have to read it first, would lose to it until their patience ends.
func (a *Appender) letOthersWrite(g *pendingBatch) {
	a.mu.Lock()
	waits := len(g.waiting) > 0
	a.mu.Unlock()
	now, pause := a.store.Now(), min(breakTransactions*g.lastDuration, maxBreak)
	switch {
	case !waits:
	case now.Before(g.reloadHeadUntil):
		clock.Sleep(context.Background(), a.store.drawPause(pause))
	case now.Sub(g.busySince) >= maxBusyTime:
		clock.Sleep(context.Background(), pause)
		g.busySince = a.store.Now()
	}
}

// maxGroupBytes keeps a transaction well under storage.MaxPayloadBytes.
const maxGroupBytes = 3 << 20

// takeGroup removes the next group: as many as one transaction holds, none of them split.
func (a *Appender) takeGroup(g *pendingBatch) []*submission {
	a.mu.Lock()
	defer a.mu.Unlock()
	ops, bytes, n := 1, 0, 0
	for _, sub := range g.waiting {
		ops++
		if !sub.message.DueAt.IsZero() {
			ops++
		}
		if sub.idempotencyRow != "" {
			ops++
		}
		bytes += sub.size
		if n > 0 && (ops > storage.MaxOps || bytes > maxGroupBytes) {
			break
		}
		n++
	}
	if n == 0 {
		g.isFlushing = false
		return nil
	}
	group := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	if len(g.waiting) == 0 {
		g.waiting = nil
	}
	return group
}

// refuseWaiting refuses all submissions that wait in a lane: storage has just been out of reach
// for longer than they should wait.
func (a *Appender) refuseWaiting(g *pendingBatch, err error) {
	a.mu.Lock()
	waiting := g.waiting
	g.waiting = nil
	a.mu.Unlock()
	for _, sub := range waiting {
		sub.sendResult(result{err: err})
	}
}

// markTimeout bounds the marking of a body, for which the answer waits although the message is
// filed.
const markTimeout = time.Second

// markBody marks a large body as belonging to a message. If that fails, retention looks the body up in the
// log before it removes it, so nothing is lost.
func (a *Appender) markBody(sub *submission) {
	name := rows.Blob.Of(sub.columns)
	if name == "" {
		return
	}
	a.wakeLane(sub.message.ID.Lane) // the delivery does not wait for the mark
	ctx, cancel := context.WithTimeout(context.WithoutCancel(sub.ctx), markTimeout)
	defer cancel()
	if err := a.store.Bodies.Mark(ctx, name); err != nil {
		a.log.Warn("append: body not marked", "err", err)
	}
}
