package lane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Earlier epochs stay as they were when they were closed, until retention has removed their messages. A
// message that was scheduled or dead has a copy in the next epoch, under a key made of its old id (o_
// rows). All other messages of an earlier epoch are final.

// copyID returns a message's position as the key of its copy has it: <epoch>.<lane>.<seq>.
func copyID(id weir.ID) string { return fmt.Sprintf("%d.%d.%d", id.Epoch, id.Lane, id.Seq) }

// storesSince returns the stores of an epoch and of those that followed, in order; nil if the epoch is not
// known.
func (s *Store) storesSince(epoch int) []*Store {
	var stores []*Store
	for _, e := range append(s.EarlierEpochs[:len(s.EarlierEpochs):len(s.EarlierEpochs)], Epoch{s.Epoch, s.Lanes}) {
		if e.Number == epoch || len(stores) > 0 {
			stores = append(stores, s.ForEpoch(e))
		}
	}
	return stores
}

// isCopied reports whether a message of a closed lane, in this stage, has a copy in a later epoch.
func isCopied(stage weir.Stage) bool { return stage == weir.Scheduled || stage == weir.Dead }

// followCopies reads the message of an id, in the epoch in which it is now. NotFound: there is none.
func (s *Store) followCopies(ctx context.Context, id weir.ID) (*Entry, error) {
	stores := s.storesSince(id.Epoch)
	if len(stores) == 0 || id.Lane < 0 || id.Lane >= stores[0].Lanes || id.Seq < 1 {
		return nil, &storage.Error{Op: "lane follow", Kind: storage.NotFound, Index: -1}
	}
	e, err := stores[0].ReadMessage(ctx, id.Lane, id.Seq)
	if err != nil {
		return nil, err
	}
	if e.Message.ID.Nonce != id.Nonce {
		return nil, &storage.Error{Op: "lane follow", Kind: storage.NotFound, Index: -1}
	}
	for _, next := range stores[1:] {
		if !isCopied(e.Stage) {
			break
		}
		if e, err = next.readCopy(ctx, e); err != nil {
			return nil, err
		}
	}
	return e, s.ForEpoch(Epoch{e.Message.ID.Epoch, 0}).fillFromPacked(ctx, e)
}

// readCopy reads the copy of a message of the epoch before.
func (s *Store) readCopy(ctx context.Context, e *Entry) (*Entry, error) {
	lane := Of(e.Message.Key, s.Lanes)
	r, err := s.Table.Get(ctx, s.partitionOf(lane), rows.CopyPrefix+copyID(e.Message.ID))
	if err != nil {
		return nil, err
	}
	return s.ReadMessage(ctx, lane, rows.Seq.Of(r.Values))
}

// findRepeat looks an idempotency key up in earlier epochs, so that a message filed there is not filed
// again. Rows of earlier epochs do not change any more.
func (s *Store) findRepeat(ctx context.Context, m weir.Message, idempotencyKey string) (Receipt, bool, error) {
	if idempotencyKey == "" || len(s.EarlierEpochs) == 0 {
		return Receipt{}, false, nil
	}
	row, id, err := s.readEarlierIdempotency(ctx, m.Key, idempotencyKey)
	if err != nil {
		return Receipt{}, false, errUnavailable("append", err)
	}
	if id.IsZero() {
		return Receipt{}, false, nil
	}
	if sum := sha256.Sum256(m.Body); rows.BodyHash.Of(row) != hex.EncodeToString(sum[:]) {
		return Receipt{}, false, errOtherBody()
	}
	st, err := s.Status(ctx, id)
	if weir.KindOf(err) == weir.NotFound {
		return Receipt{}, false, nil // removed just now: its retention is over
	}
	return Receipt{Message: st.Message, Stage: st.Stage, Duplicate: true}, true, err
}

// readEarlierIdempotency asks all earlier epochs at once for an idempotency row. The zero id: none
// has it.
func (s *Store) readEarlierIdempotency(ctx context.Context, key, idempotencyKey string) (map[string]any,
	weir.ID, error) {
	found, errs := make([]storage.Row, len(s.EarlierEpochs)), make([]error, len(s.EarlierEpochs))
	var wg sync.WaitGroup
	for i, e := range s.EarlierEpochs {
		wg.Go(func() {
			found[i], errs[i] = s.Table.Get(ctx, rows.Partition(e.Number, Of(key, e.Lanes)),
				idempotencyKeyRow(key, idempotencyKey))
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err == nil {
			v, e := found[i].Values, s.EarlierEpochs[i]
			return v, weir.ID{Epoch: e.Number, Lane: Of(key, e.Lanes), Seq: rows.Seq.Of(v),
				Nonce: rows.Nonce.Of(v)}, nil
		}
		if !storage.Is(err, storage.NotFound) {
			return nil, weir.ID{}, err
		}
	}
	return nil, weir.ID{}, nil
}
