package lane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/clock"
	"weir/internal/lane/rows"
	"weir/internal/panics"
	"weir/internal/weir"
)

// Receipt describes an appended message.
type Receipt struct {
	Message   weir.Message // with its ID; without body
	Stage     weir.Stage
	Duplicate bool // an earlier submission has appended the message
}

// Appender appends messages. While a transaction of a lane is in flight, further messages of the
// lane wait. The next transaction takes as many of them as it can hold. So a single message waits
// only for its own transaction, and a burst of messages needs few transactions. An Appender is safe
// for concurrent use.
type Appender struct {
	// OnFiled, if set, is called with the messages of each transaction, before their callers get an
	// answer. The messages are durable, have their bodies, and are in the order of the log. OnFiled
	// must return at once. Set OnFiled before the first Append.
	OnFiled func(lane int, messages []weir.Message)

	// OnWake, if set, is called when a lane has a new message of which no caller of Append can
	// know:
	//   - A message becomes durable after its caller gave up.
	//   - A large body is about to be marked as used.
	//
	// The calls come after OnFiled. OnWake can be called twice for one message. It must return at
	// once. Set OnWake before the first Append.
	OnWake func(lane int)

	// OnSealed, if set, is called when an append finds that its lane is sealed (see Head.IsSealed).
	// OnSealed must return at once. Set OnSealed before the first Append.
	OnSealed func()

	store *Store
	log   *slog.Logger
	used  atomic.Int64 // memory of all unanswered submissions, in bytes

	mu    sync.Mutex
	lanes map[int]*pendingAppends
}

// pendingAppends has the submissions that wait for the next transaction of one lane.
type pendingAppends struct {
	waiting         []series
	isFlushing      bool
	head            Head          // as last read or written; zero = not known
	lastDuration    time.Duration // duration of the last transaction
	busySince       time.Time     // start of the present series of transactions without a break
	reloadHeadUntil time.Time     // until this time, head is read before each try of a transaction
}

// submission is a message that waits to be appended.
type submission struct {
	ctx            context.Context
	lane           int
	message        weir.Message
	idempotencyRow string // key of its idempotency row (i_); empty = no idempotency key
	bodyHash       string
	nonce          string
	// columns of the message's row that have the body and the shown values
	columns    map[string]any
	size       int           // bytes in a transaction, roughly
	weight     int64         // bytes in memory, roughly
	used       *atomic.Int64 // Appender.used, which includes weight until sendResult
	done       chan result
	isAnswered bool // sendResult was called

	followers []*submission // repeats of this submission, which get its result
}

type result struct {
	receipt Receipt
	err     error
}

// NewAppender returns an Appender for a store.
func NewAppender(s *Store, log *slog.Logger) *Appender {
	return &Appender{store: s, log: log, lanes: map[int]*pendingAppends{}}
}

// Append appends a message to the lane of its key, and returns when the message is durable. If an
// earlier message has the same ordering key and idempotency key, Append returns the earlier
// message. If the earlier message had another body, Append returns an Invalid error. An empty
// idempotencyKey means that there is none. After an Unavailable error the message may have been
// appended, unless IsNotAppended reports otherwise. If ctx ends before the message's row is sent to
// storage, there will be no row.
//
// The caller makes a process look at the lane: a receiver answers the post first. On a machine with
// few cores, a delivery that begins before the answer would delay the answer.
func (a *Appender) Append(ctx context.Context, m weir.Message,
	idempotencyKey string) (Receipt, error) {
	sub, known, err := a.newSubmission(ctx, m, idempotencyKey)
	if sub == nil {
		return known, err
	}
	a.addToPending(series{sub})
	return a.awaitResult(ctx, sub)
}

// newSubmission returns a submission that can be added to the waiting ones of its lane. If an
// earlier epoch has the message, or after an error, there is no submission. After an error the
// message is certainly not appended.
func (a *Appender) newSubmission(ctx context.Context, m weir.Message,
	idempotencyKey string) (*submission, Receipt, error) {
	if known, found, err := a.store.findRepeat(ctx, m, idempotencyKey); found || err != nil {
		return nil, known, markNotAppended(err)
	}

	sub := &submission{ctx: ctx, message: m, lane: a.store.LaneOf(m.Key), nonce: newNonce(),
		used: &a.used, done: make(chan result, 1)}
	if err := sub.reserveMemory(); err != nil {
		return nil, Receipt{}, markNotAppended(err)
	}

	if err := a.prepareSubmission(ctx, sub, idempotencyKey); err != nil {
		sub.sendResult(result{err: err})
		return nil, Receipt{}, markNotAppended(err)
	}

	return sub, Receipt{}, nil
}

// awaitResult waits for the result of a submission that was added to the waiting ones, until ctx
// ends.
func (a *Appender) awaitResult(ctx context.Context, sub *submission) (Receipt, error) {
	select {
	case r := <-sub.done:
		if r.err == nil && !r.receipt.Duplicate {
			a.markBody(sub)
		}
		return r.receipt, r.err

	case <-ctx.Done():
		go a.wakeFor(sub)
		return Receipt{}, errAbandoned(ctx)
	}
}

// wakeFor waits for the result of a submission whose caller has given up. It wakes the lane if the
// message was appended.
func (a *Appender) wakeFor(sub *submission) {
	defer panics.Log(a.log, "append: wake")
	if r := <-sub.done; r.err == nil {
		a.wakeLane(sub.lane)
	}
}

func (a *Appender) wakeLane(lane int) {
	if a.OnWake != nil {
		a.OnWake(lane)
	}
}

func errAbandoned(ctx context.Context) error {
	return &weir.Error{Kind: weir.Unavailable, Op: "append",
		Message:    "gave up waiting for storage; the message may have been filed",
		RetryAfter: time.Second,
		Err:        context.Cause(ctx)}
}

// maxUsedBytes limits the memory of all unanswered submissions. Without this limit, memory would
// grow with every post if storage hangs.
const maxUsedBytes = 64 << 20

// submissionOverhead is the estimated memory of a submission without its body, in bytes.
const submissionOverhead = 4 << 10

// reserveMemory reserves memory for the submission. It fails if all unanswered submissions together
// would need more than maxUsedBytes. It never fails if there is no other unanswered submission.
func (sub *submission) reserveMemory() error {
	sub.weight = int64(len(sub.message.Body)) + submissionOverhead
	if used := sub.used.Add(sub.weight); used > maxUsedBytes && used > sub.weight {
		sub.used.Add(-sub.weight)
		return &weir.Error{Kind: weir.Unavailable, Op: "append",
			Message:    "too many messages wait for storage at the moment; try again",
			RetryAfter: 5 * time.Second}
	}

	return nil
}

// sendResult answers the submission. Only the first call has an effect; there are more calls only
// after a panic.
func (sub *submission) sendResult(r result) {
	if sub.isAnswered {
		return
	}
	sub.isAnswered = true
	sub.used.Add(-sub.weight)
	sub.done <- r
}

// prepareSubmission fills in the fields of the submission that do not depend on head. It stores a
// large body in a blob.
func (a *Appender) prepareSubmission(ctx context.Context, sub *submission,
	idempotencyKey string) error {
	m := &sub.message
	if idempotencyKey != "" {
		bodySum := sha256.Sum256(m.Body)
		sub.idempotencyRow, sub.bodyHash = idempotencyKeyRow(m.Key, idempotencyKey),
			hex.EncodeToString(bodySum[:])
	}

	var err error
	sub.columns, err = storeBody(ctx, a.store.Bodies, m.Body,
		blobName(a.store.Now(), a.store.Partition(sub.lane), sub.nonce), acceptedBody)
	if err != nil {
		return APIError("append: store body", err)
	}

	if shown := packShown(m.Shown); shown != "" {
		rows.Put(sub.columns, rows.Shown.Is(shown))
	}

	inline := rows.Body.Of(sub.columns)

	// Base64 turns 3 bytes into 4. Column names, types and request headers take less than 2 KiB for
	// a row.
	sub.size = len(inline)*4/3 +
		6*(len(m.Key)+len(m.Callback)+len(rows.Shown.Of(sub.columns))) + 2048
	m.Size = len(m.Body)
	if !m.DueAt.IsZero() {
		m.DueAt = RoundDueTime(m.DueAt)
	}

	return nil
}

// addToPending adds the series to the waiting ones of its lane. It starts flushPending, unless that
// function already runs for the lane.
func (a *Appender) addToPending(s series) {
	a.mu.Lock()
	defer a.mu.Unlock()
	lane := s[0].lane
	g := a.lanes[lane]
	if g == nil {
		g = &pendingAppends{}
		a.lanes[lane] = g
	}

	g.waiting = append(g.waiting, s)
	if !g.isFlushing {
		g.isFlushing = true
		go a.flushPending(lane, g)
	}
}

// flushPending appends the waiting submissions of a lane until none is left. Each transaction takes
// a group of them.
func (a *Appender) flushPending(lane int, g *pendingAppends) {
	g.busySince = a.store.Now()
	for {
		group := a.takeGroup(g)
		if group == nil {
			return
		}

		t := &appendTransaction{a: a, lane: lane, pending: g, group: group}
		err := panics.Catch(func() error { t.appendGroup(); return nil })
		if err != nil {
			a.log.Error("append: panic in a transaction", "lane", lane, "err", err)
			t.refuseAfterPanic(err)
		}

		a.letOthersWrite(g)
	}
}

const (
	// maxBusyTime is the longest time for which a lane is written without a break.
	maxBusyTime = 2 * time.Second
	// breakTransactions is the length of a break, as a multiple of the last transaction's duration.
	// In that time another process can read head and then write head.
	breakTransactions = 2
	// maxBreak is the longest break. It applies if storage is slow.
	maxBreak = 500 * time.Millisecond
)

// letOthersWrite pauses between two transactions, so that other processes can write the lane. A
// process that writes without a break knows head from its own writes. Another process must read
// head first, and its write would come too late each time. If another process has written head
// lately, letOthersWrite pauses after each transaction. If no other process has written head
// lately, letOthersWrite pauses only after maxBusyTime without a break. If no submission waits,
// letOthersWrite does not pause.
func (a *Appender) letOthersWrite(g *pendingAppends) {
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

// takeGroup removes the next series that fit into one transaction, and returns their submissions.
// If no series waits, takeGroup returns nil.
func (a *Appender) takeGroup(g *pendingAppends) (group []*submission) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var taken transactionSize
	n := 0
	for _, s := range g.waiting {
		for _, sub := range s {
			taken.add(sub)
		}

		if n > 0 && taken.isTooLarge() {
			break
		}

		group = append(group, s...)
		n++
	}

	if g.waiting = g.waiting[n:]; len(g.waiting) == 0 {
		g.waiting = nil
	}

	g.isFlushing = n > 0

	return group
}

// takeWaiting removes all waiting series of a lane, and returns their submissions.
func (a *Appender) takeWaiting(g *pendingAppends) []*submission {
	a.mu.Lock()
	defer a.mu.Unlock()
	waiting := slices.Concat(g.waiting...)
	g.waiting = nil
	return waiting
}

// markTimeout limits the time for marking a body, because the answer to the caller waits for the
// mark.
const markTimeout = time.Second

// markBody marks the blob of a large body as used by a message. An error does no harm: retention
// removes an unmarked blob only if no row names the blob.
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

// notAppendedError is an error of an append that certainly stored no message.
type notAppendedError struct{ error }

// Unwrap lets errors.As find the error and its causes.
func (e notAppendedError) Unwrap() error { return e.error }

// markNotAppended marks an error after which the message of the submission is certainly not in the
// log. It returns nil for nil.
func markNotAppended(err error) error {
	if err == nil {
		return nil
	}
	return notAppendedError{err}
}

// IsNotAppended reports whether an error of an Appender shows that the call stored no message.
// After every other error the message may be in the log, because the answer to the transaction was
// lost.
func IsNotAppended(err error) bool {
	var e notAppendedError
	return errors.As(err, &e)
}
