package lane

import (
	"context"

	"weir/internal/storage"
)

// ReplayMany asks the holder to replay dead messages of one lane. One transaction stores many
// requests, in the order of entries. If there are several transactions, the holder can deliver
// messages of the first transaction before the next one is done. The entries must have their
// attempts; ReadMessage returns such entries.
//
// results has one result for each entry, in the order of entries: nil, or the Conflict or NotFound
// error of Replay. After any other error ReplayMany stops: it returns the error, and the results of
// the entries that were already handled. A repeated call does no harm.
func (rs Requests) ReplayMany(ctx context.Context, lane int, entries []*Entry,
	force bool) (results []error, err error) {
	b := bulkReplay{store: rs.store, force: force, nonce: newNonce()}
	asked, err := b.prepareAll(ctx, entries)
	if err != nil {
		return nil, err
	}

	c := manyChange{requests: rs, lane: lane,
		opsOf:    func(e *Entry) []storage.Op { return asked[e].ops },
		noteDone: func(*Entry) { results = append(results, nil) },
		changeAlone: func(ctx context.Context, e *Entry) error {
			err := asked[e].err
			if len(asked[e].ops) > 0 {
				err = b.requestAlone(ctx, e)
			}

			if err != nil && !isRefused(err) {
				return err
			}

			results = append(results, err)

			return nil
		}}

	err = c.changeAll(ctx, entries)

	return results, err
}

// bulkReplay is one call of ReplayMany.
type bulkReplay struct {
	store *Store
	force bool
	// one nonce for all requests; it shows requestAlone that a request is already stored
	nonce string
}

// askedReplay is the request for one message of the call.
type askedReplay struct {
	ops []storage.Op // none = there is nothing to do
	err error        // the Conflict or NotFound error of Replay
}

// prepareAll makes the operations of the request for each message, concurrently.
func (b *bulkReplay) prepareAll(ctx context.Context,
	entries []*Entry) (map[*Entry]askedReplay, error) {
	asked := make([]askedReplay, len(entries))
	err := ForEach(len(entries), func(i int) error {
		ops, err := b.callFor().requestOps(ctx, entries[i])
		if err != nil && !isRefused(err) {
			return err
		}
		asked[i] = askedReplay{ops, err}
		return nil
	})

	byEntry := make(map[*Entry]askedReplay, len(entries))
	for i, e := range entries {
		byEntry[e] = asked[i]
	}

	return byEntry, err
}

func (b *bulkReplay) callFor() *replayCall {
	return &replayCall{Store: b.store, ReplayOptions: ReplayOptions{Force: b.force}, nonce: b.nonce}
}

func (b *bulkReplay) requestAlone(ctx context.Context, e *Entry) error {
	ask := b.callFor()
	return b.store.Requests().changeMessage(ctx, e.Message.ID,
		func(now *Entry) ([]storage.Op, error) {
			return ask.requestOps(ctx, now)
		})
}
