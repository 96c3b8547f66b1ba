package lane

import (
	"context"

	"weir/internal/clock"
	"weir/internal/storage"
	"weir/internal/weir"
)

// ReplayMany asks the holder to replay dead messages of one lane. One transaction stores many requests, in the order of
// entries. If there are several transactions, the holder can deliver messages of the first transaction before the next
// one is done. The entries must have their attempts; ReadMessage returns such entries.
//
// results has one result for each entry, in the order of entries: nil, or the Conflict or NotFound error of Replay.
// After any other error ReplayMany stops: it returns the error, and the results of the entries that were already
// handled. A repeated call does no harm.
func (rs Requests) ReplayMany(ctx context.Context, lane int, entries []*Entry, force bool) (results []error,
	err error) {
	b := bulkReplay{store: rs.store, lane: lane, force: force, nonce: newNonce()}
	asked, err := b.prepareAll(ctx, entries)
	for len(asked) > 0 && err == nil {
		n := countTogether(asked)
		err = b.requestTogether(ctx, asked[:n])
		asked = asked[n:]
	}
	return b.results, err
}

// bulkReplay is one call of ReplayMany.
type bulkReplay struct {
	store   *Store
	lane    int
	force   bool
	nonce   string  // one nonce for all requests; it shows requestAlone that a request is already stored
	results []error // the results of the messages that were handled so far
}

// askedReplay is one message of the call.
type askedReplay struct {
	entry *Entry
	ops   []storage.Op // the operations of the request; none = there is nothing to do
	err   error        // the Conflict or NotFound error of Replay
}

// prepareAll makes the operations of the request for each message, concurrently.
func (b *bulkReplay) prepareAll(ctx context.Context, entries []*Entry) ([]askedReplay, error) {
	asked := make([]askedReplay, len(entries))
	err := ForEach(len(entries), func(i int) error {
		ops, err := b.callFor().requestOps(ctx, entries[i])
		if err != nil && !isReplayRefused(err) {
			return err
		}
		asked[i] = askedReplay{entries[i], ops, err}
		return nil
	})
	return asked, err
}

func (b *bulkReplay) callFor() *replayCall {
	return &replayCall{Store: b.store, ReplayOptions: ReplayOptions{Force: b.force}, nonce: b.nonce}
}

func isReplayRefused(err error) bool {
	kind := weir.KindOf(err)
	return kind == weir.Conflict || kind == weir.NotFound
}

// countTogether returns the largest number n for which the requests of the first n messages fit into one transaction.
// The transaction also has one operation for head.
func countTogether(asked []askedReplay) (n int) {
	for ops := 1; n < len(asked) && ops+len(asked[n].ops) <= storage.MaxOps; n++ {
		ops += len(asked[n].ops)
	}
	return n
}

// requestTogether stores the requests of a group with one transaction. If the transaction fails, requestTogether stores
// each request alone, under the same nonce. For example, a transaction fails if a message was changed after it was
// read.
func (b *bulkReplay) requestTogether(ctx context.Context, group []askedReplay) error {
	var ops []storage.Op
	for _, a := range group {
		ops = append(ops, a.ops...)
	}
	var failed error
	if len(ops) > 0 {
		failed = b.store.Requests().raiseRequestSeq(ctx, b.lane, ops)
		if storage.Is(failed, storage.Precondition) && storage.FailedAt(failed) <= 0 {
			if clock.Sleep(ctx, b.store.drawPause(conflictPause)) { // an append, for example, has changed head
				failed = b.store.Requests().raiseRequestSeq(ctx, b.lane, ops)
			}
		}
	}
	for _, a := range group {
		err := a.err
		if failed != nil && len(a.ops) > 0 {
			err = b.requestAlone(ctx, a.entry)
		}
		if err != nil && !isReplayRefused(err) {
			return err
		}
		b.results = append(b.results, err)
	}
	return nil
}

func (b *bulkReplay) requestAlone(ctx context.Context, e *Entry) error {
	ask := b.callFor()
	return b.store.Requests().changeMessage(ctx, e.Message.ID, func(now *Entry) ([]storage.Op, error) {
		return ask.requestOps(ctx, now)
	})
}
