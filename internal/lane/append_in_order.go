package lane

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane/rows"
	"weir/internal/panics"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Draft is a message that is to be appended.
type Draft struct {
	Message        weir.Message
	IdempotencyKey string // empty = none
}

// series has submissions of one caller for one lane, in order. They are appended by one
// transaction, so an outcome that is not known is that of all of them.
type series []*submission

// transactionSize is the size of a transaction that appends submissions.
type transactionSize struct{ ops, bytes int }

func (s *transactionSize) add(sub *submission) {
	s.bytes += sub.size
	s.ops++
	if !sub.message.DueAt.IsZero() {
		s.ops++
	}

	if sub.idempotencyRow != "" {
		s.ops++
	}
}

// isTooLarge reports whether the submissions and the operation on head do not fit into one
// transaction.
func (s *transactionSize) isTooLarge() bool {
	return 1+s.ops > storage.MaxOps || s.bytes > rows.MaxGroupBytes
}

// orderedDraft is a draft of a call of AppendInOrder, with its result.
type orderedDraft struct {
	sub     *submission // nil = the draft has its result without an append
	receipt Receipt
	err     error
}

// hasFailed reports whether a repeated call may append the message. Until then, no later message of
// its lane may be appended. The only error that refuses a message for good is that of errOtherBody.
func (d *orderedDraft) hasFailed() bool {
	return d.err != nil && weir.KindOf(d.err) != weir.Invalid
}

// AppendInOrder appends messages as Append does, with few transactions, and returns a
// receipt or an error for each. A message is appended only if each earlier message of the same lane
// in drafts is in the log, or is refused for good, because its idempotency key was used for another
// body. A repeated call with the same idempotency keys appends the rest, in order. AppendInOrder
// prepares all messages at the same time, so the caller must limit their number.
func (a *Appender) AppendInOrder(ctx context.Context, drafts []Draft) ([]Receipt, []error) {
	ordered := make([]*orderedDraft, len(drafts))
	for i := range ordered {
		ordered[i] = &orderedDraft{}
	}

	runAtOnce(ordered, func(i int, d *orderedDraft) (err error) {
		d.sub, d.receipt, err = a.newSubmission(ctx, drafts[i].Message, drafts[i].IdempotencyKey)
		return err
	})

	byLane := map[int][]*orderedDraft{}
	for i, d := range ordered {
		lane := a.store.LaneOf(drafts[i].Message.Key)
		byLane[lane] = append(byLane[lane], d)
	}

	var lanes errgroup.Group
	for _, ofLane := range byLane {
		lanes.Go(panics.Guard(func() error { a.appendLane(ctx, ofLane); return nil }))
	}

	if err := lanes.Wait(); err != nil {
		return make([]Receipt, len(drafts)), slices.Repeat([]error{err}, len(drafts))
	}

	receipts, errs := make([]Receipt, len(drafts)), make([]error, len(drafts))
	for i, d := range ordered {
		receipts[i], errs[i] = d.receipt, d.err
	}

	return receipts, errs
}

// runAtOnce calls f with each draft at the same time, and stores the errors in the drafts.
func runAtOnce(drafts []*orderedDraft, f func(i int, d *orderedDraft) error) {
	var calls sync.WaitGroup
	for i, d := range drafts {
		calls.Go(func() { d.err = panics.Catch(func() error { return f(i, d) }) })
	}
	calls.Wait()
}

// appendLane appends the drafts of one lane, one series after the other, until one of them fails.
func (a *Appender) appendLane(ctx context.Context, drafts []*orderedDraft) {
	for len(drafts) > 0 {
		n := countNext(drafts)
		a.appendSeries(ctx, drafts[:n])

		if slices.ContainsFunc(drafts[:n], (*orderedDraft).hasFailed) {
			refuseBehind(drafts[n:])
			return
		}

		drafts = drafts[n:]
	}
}

// countNext returns the number of drafts of the next series: as many as fit into one transaction,
// but at least one. A draft that has failed is the last one of its series.
func countNext(drafts []*orderedDraft) int {
	var size transactionSize
	for i, d := range drafts {
		if d.hasFailed() {
			return i + 1
		}

		if d.sub != nil {
			size.add(d.sub)
		}

		if i > 0 && size.isTooLarge() {
			return i
		}
	}

	return len(drafts)
}

// appendSeries appends the drafts that have no result yet.
func (a *Appender) appendSeries(ctx context.Context, drafts []*orderedDraft) {
	var s series
	for _, d := range drafts {
		if d.sub != nil {
			s = append(s, d.sub)
		}
	}

	if len(s) == 0 {
		return
	}

	a.addToPending(s)
	runAtOnce(drafts, func(_ int, d *orderedDraft) (err error) {
		if d.sub == nil {
			return d.err
		}
		d.receipt, err = a.awaitResult(ctx, d.sub)
		return err
	})
}

// refuseBehind refuses the drafts behind one that has failed.
func refuseBehind(drafts []*orderedDraft) {
	for _, d := range drafts {
		if d.sub == nil {
			continue
		}

		d.err = markNotAppended(&weir.Error{Kind: weir.Unavailable, Op: "append",
			Message:    "an earlier message of the lane could not be appended; try again",
			RetryAfter: time.Second})
		d.sub.sendResult(result{err: d.err}) // it frees the memory
	}
}
