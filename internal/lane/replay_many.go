package lane

import (
	"context"

	"weir/internal/clock"
	"weir/internal/storage"
	"weir/internal/weir"
)

// ReplayMany requests the replay of dead messages of one lane, many with one transaction, in the given order: the
// holder may deliver a message before the next is requested. It returns a result for each message, in that order:
// nil, or the Conflict or NotFound error of Replay. After another failure it returns that error, and results only for
// the messages that were handled before. Repeating a call does no harm. The entries must have their attempts, as
// entries from ReadMessage have.
func (rs Requests) ReplayMany(ctx context.Context, lane int, entries []*Entry, force bool) (results []error,
	err error) {
	c, err := rs.store.ReadControl(ctx, lane)
	if err != nil {
		return nil, APIError("replay", err)
	}
	b := bulkReplay{store: rs.store, lane: lane, force: force, nonce: newNonce(), historyFence: c.Tail.HistoryFence}
	asked, err := b.prepareAll(ctx, entries)
	for len(asked) > 0 && err == nil {
		n := countTogether(asked)
		err = b.requestTogether(ctx, asked[:n])
		asked = asked[n:]
	}
	return b.results, err
}

// bulkReplay is a run of ReplayMany.
type bulkReplay struct {
	store        *Store
	lane         int
	force        bool
	nonce        string  // nonce of all requests: requestAlone recognizes by it a stored request whose answer was lost
	historyFence int64   // Tail.HistoryFence
	results      []error // the results of the messages that were handled
}

// askedReplay is one message of a run.
type askedReplay struct {
	entry *Entry
	ops   []storage.Op // operations of its request; none = there is nothing to do
	err   error        // Conflict or NotFound
}

// prepareAll finds out, concurrently, for which of the messages a replay can be requested.
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
	return &replayCall{Store: b.store, ReplayOptions: ReplayOptions{Force: b.force}, nonce: b.nonce,
		historyFence: &b.historyFence}
}

func isReplayRefused(err error) bool {
	kind := weir.KindOf(err)
	return kind == weir.Conflict || kind == weir.NotFound
}

// countTogether returns how many of the first messages one transaction takes. One of its operations is for head.
func countTogether(asked []askedReplay) (n int) {
	for ops := 1; n < len(asked) && ops+len(asked[n].ops) <= storage.MaxOps; n++ {
		ops += len(asked[n].ops)
	}
	return n
}

// requestTogether requests the replays of a group with one transaction. If that fails, for example because a message
// has changed since it was read, or because the answer was lost, it requests each replay alone, under the same nonce.
func (b *bulkReplay) requestTogether(ctx context.Context, group []askedReplay) error {
	var ops []storage.Op
	for _, a := range group {
		ops = append(ops, a.ops...)
	}
	var failed error
	if len(ops) > 0 {
		failed = b.store.Requests().raiseRequestSeq(ctx, b.lane, ops)
		if storage.Is(failed, storage.Precondition) && storage.FailedAt(failed) <= 0 {
			if clock.Sleep(ctx, b.store.drawPause(conflictPause)) { // an append was faster
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
