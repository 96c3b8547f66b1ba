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

// Receipt describes a filed message.
type Receipt struct {
	Message   weir.Message // with its ID; without body
	Stage     weir.Stage
	Duplicate bool // an earlier submission has filed the message
}

// Appender files messages. While one transaction of a lane is in flight, arriving messages gather; the next
// transaction takes as many as it has room for. So a lone message waits for one transaction, and a burst shares
// transactions, without a timer. An Appender is safe for concurrent use.
type Appender struct {
	// OnFiled, if set, is called with each group as soon as it is durable and before its
	// submissions are answered. The messages are in the order of the log and have their bodies.
	// OnFiled must return at once. Set it before the first Append.
	OnFiled func(lane int, messages []weir.Message)

	// OnWake, if set, is called after OnFiled in three cases: Append returns a new message, a message becomes
	// durable after its caller gave up, or a large body is about to be marked. It may be called twice for
	// one message. It must return at once. Set it before the first Append.
	OnWake func(lane int)

	// OnSealed, if set, is called when an append finds that its lane is sealed. It must return at
	// once. Set it before the first Append.
	OnSealed func()

	store *Store
	log   *slog.Logger
	used  atomic.Int64 // bytes of memory that submissions without an answer use

	mu    sync.Mutex
	lanes map[int]*pendingBatch
}

// pendingBatch has the submissions that wait for the next transaction of one lane.
type pendingBatch struct {
	waiting         []*submission
	isFlushing      bool
	head            Head          // as last read or written; zero = not known
	lastDuration    time.Duration // duration of the last transaction
	busySince       time.Time     // transactions have followed each other without a break since this time
	reloadHeadUntil time.Time     // other processes may write head until this time: read it before each attempt
}

// submission is a message that waits to be filed.
type submission struct {
	ctx            context.Context
	message        weir.Message
	idempotencyRow string // row key of its idempotency key; empty = none
	bodyHash       string
	nonce          string
	columns        map[string]any // the columns of the body
	size           int            // bytes in a transaction, roughly
	weight         int64          // bytes in memory, roughly
	used           *atomic.Int64  // the Appender's used; it includes weight until the submission is answered
	done           chan result

	followers []*submission // repeats of this submission in the same group
}

type result struct {
	receipt Receipt
	err     error
}

// NewAppender returns an Appender for a store.
func NewAppender(s *Store, log *slog.Logger) *Appender {
	return &Appender{store: s, log: log, lanes: map[int]*pendingBatch{}}
}

// Append files a message in the lane of its key, and returns when it is durable. The scope of an idempotency key is
// the ordering key. If the idempotency key was used before, Append returns the earlier message, or an Invalid error
// if the earlier message had another body. After an Unavailable error the message may or may not be filed. If ctx
// ends early, the message may still be filed, but only if a transaction with it had been sent by then.
func (a *Appender) Append(ctx context.Context, m weir.Message, idempotencyKey string) (Receipt, error) {
	r, err := a.AppendWithoutWake(ctx, m, idempotencyKey)
	if err == nil && !r.Duplicate {
		a.wakeLane(r.Message.ID.Lane)
	}
	return r, err
}

// AppendWithoutWake is Append without the call of OnWake when it returns. It is for a receiver that wakes the lane
// itself after it has answered: on a machine with few cores, the delivery would take a core away from the answer.
func (a *Appender) AppendWithoutWake(ctx context.Context, m weir.Message, idempotencyKey string) (Receipt, error) {
	if r, found, err := a.store.findRepeat(ctx, m, idempotencyKey); found || err != nil {
		return r, err
	}
	sub := &submission{ctx: ctx, message: m, nonce: newNonce(), used: &a.used, done: make(chan result, 1)}
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

// wakeFor waits for the result of a submission whose caller has gone, and wakes the lane if the submission was filed.
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
		Message: "gave up waiting for storage; the message may have been filed", RetryAfter: time.Second,
		Err: context.Cause(ctx)}
}

// maxUsedBytes limits the memory of all submissions that wait for their answers. Without this limit, their memory
// would grow with every post while storage hangs.
const maxUsedBytes = 64 << 20

// submissionOverhead is the memory of a submission besides its body.
const submissionOverhead = 4 << 10

// reserveMemory reserves memory for the submission. It fails if other submissions wait and all together would need more
// than maxUsedBytes.
func (sub *submission) reserveMemory() error {
	sub.weight = int64(len(sub.message.Body)) + submissionOverhead
	if used := sub.used.Add(sub.weight); used > maxUsedBytes && used > sub.weight {
		sub.used.Add(-sub.weight)
		return &weir.Error{Kind: weir.Unavailable, Op: "append",
			Message: "too many messages wait for storage at the moment; try again", RetryAfter: 5 * time.Second}
	}
	return nil
}

// sendResult answers the submission. It is called once for each submission.
func (sub *submission) sendResult(r result) {
	sub.used.Add(-sub.weight)
	sub.done <- r
}

// prepareSubmission fills in all fields of the submission that do not depend on head, and returns the message's lane.
// It stores a large body in a blob.
func (a *Appender) prepareSubmission(ctx context.Context, sub *submission, idempotencyKey string) (int, error) {
	m := &sub.message
	lane := Of(m.Key, a.store.Lanes)
	if idempotencyKey != "" {
		bodySum := sha256.Sum256(m.Body)
		sub.idempotencyRow, sub.bodyHash = idempotencyKeyRow(m.Key, idempotencyKey), hex.EncodeToString(bodySum[:])
	}
	var err error
	sub.columns, err = storeBody(ctx, a.store.Bodies, m.Body,
		blobName(a.store.Now(), a.store.Partition(lane), sub.nonce), acceptedBody)
	if err != nil {
		return 0, APIError("append: store body", err)
	}
	if shown := packShown(m.Shown); shown != "" {
		rows.Put(sub.columns, rows.Shown.Is(shown))
	}
	inline := rows.Body.Of(sub.columns)
	// Base64 turns 3 bytes into 4. Names, annotations and headers of a row take less than 2 KiB.
	sub.size = len(inline)*4/3 + 6*(len(m.Key)+len(m.Callback)+len(rows.Shown.Of(sub.columns))) + 2048
	m.Size = len(m.Body)
	if !m.DueAt.IsZero() {
		m.DueAt = RoundDueTime(m.DueAt)
	}
	return lane, nil
}

// addToPending adds the submission to its lane's batch, and starts the lane's flusher unless it is running.
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

// flushPending files group after group until no submission of the lane waits.
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
	// maxBusyTime is how long a lane is written before a break.
	maxBusyTime = 2 * time.Second
	// breakTransactions is the length of a break, measured in transactions. During the break another process that has
	// lost the race for head can read and write head.
	breakTransactions = 2
	// maxBreak limits a break if storage is slow.
	maxBreak = 500 * time.Millisecond
)

// letOthersWrite takes a break while more submissions wait. It does so from time to time, and after each transaction
// while other processes write the lane. A receiver that writes without a break knows head from its own writes. Other
// processes have to read head first, and would lose the race until their patience ends.
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

// takeGroup removes the next group from the batch: as many submissions as fit into one transaction.
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
		if n > 0 && (ops > storage.MaxOps || bytes > rows.MaxGroupBytes) {
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

// takeWaiting removes and returns all waiting submissions of a lane. The caller refuses them, because storage was
// unavailable for appendPatience, or because the lane is sealed.
func (a *Appender) takeWaiting(g *pendingBatch) []*submission {
	a.mu.Lock()
	defer a.mu.Unlock()
	waiting := g.waiting
	g.waiting = nil
	return waiting
}

// markTimeout limits the time to mark a body. The answer waits for the mark, although the message is filed.
const markTimeout = time.Second

// markBody marks a large body as used by a message. If that fails, no body is lost: retention removes an unmarked
// body only if no row refers to it.
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
