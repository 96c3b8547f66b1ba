package lane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"weir/internal/lane/epochs"
	"weir/internal/lane/rows"
	"weir/internal/panics"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Status returns the status of a message, from the epoch that has the message now. It returns
// NotFound if there is no message with this id, or if retention has removed the message.
func (ms Messages) Status(ctx context.Context, id weir.ID) (weir.Status, error) {
	e, err := ms.findMessage(ctx, id)
	if err != nil {
		return weir.Status{}, err
	}
	return e.status, nil
}

// findMessage reads a message by its id, from the epoch that has the message now. It returns errors
// that the API can answer with.
func (ms Messages) findMessage(ctx context.Context, id weir.ID) (*Entry, error) {
	e, err := ms.followCopies(ctx, id)
	if storage.Is(err, storage.NotFound) {
		return nil, errNoMessage("status")
	}
	if err != nil {
		return nil, APIError("status", err)
	}

	return e, nil
}

func errNoMessage(op string) error {
	return &weir.Error{Kind: weir.NotFound, Op: op,
		Message: "there is no message with this id, or it was removed after its retention"}
}

// LoadMessage reads a message with its accepted body, even if the message was edited later. It
// returns NotFound in the same cases as Status, and also if the content of the message was erased.
func (ms Messages) LoadMessage(ctx context.Context, id weir.ID) (weir.Message, error) {
	return ms.loadVersion(ctx, id, false)
}

func (ms Messages) loadVersion(ctx context.Context, id weir.ID, edited bool) (weir.Message, error) {
	e, err := ms.findMessage(ctx, id)
	if err != nil {
		return weir.Message{}, err
	}

	if edited && !e.isEdited {
		return weir.Message{},
			&weir.Error{Kind: weir.NotFound, Op: "load", Message: "the message was not edited"}
	}

	if e.IsErased() {
		return weir.Message{}, &weir.Error{Kind: weir.NotFound, Op: "load",
			Message: "the content of the message was erased"}
	}

	if !edited {
		e.useAccepted()
	}

	at := ms.store.ForEpoch(epochs.Epoch{Number: e.Message.ID.Epoch})
	err = at.LoadBody(ctx, e)
	if storage.Is(err, storage.NotFound) {
		return weir.Message{}, &weir.Error{Kind: weir.NotFound, Op: "load",
			Message: "the message was removed after its retention", Err: err}
	}

	if storage.IsObjectFault(err) {
		return weir.Message{}, &weir.Error{Kind: weir.Conflict, Op: "load", Err: err,
			Message: "storage does not return the body of this message: " + storage.Describe(err)}
	}

	if err != nil {
		return weir.Message{}, APIError("load", err)
	}

	return e.Message, nil
}

// useAccepted makes the entry refer to the accepted body, with its version and content type,
// instead of the edited one.
func (e *Entry) useAccepted() {
	e.isEdited = false
	m := &e.Message
	m.Version, m.ContentType, m.Edition = rows.Version.Of(e.row), rows.ContentType.Of(e.row), 0
	m.Size = int(rows.Size.Of(e.row))
}

// ReadStatus reads the status of a message in the store's epoch, by its sequence number.
func (s *Store) ReadStatus(ctx context.Context, lane int, seq int64) (weir.Status, error) {
	e, err := s.ReadMessage(ctx, lane, seq)
	if err == nil {
		err = s.rowsOfLane(lane).fillFromPacked(ctx, e)
	}

	if err != nil {
		return weir.Status{}, err
	}

	return e.status, nil
}

// After the lanes of an epoch are closed, only erasure and retention change their messages. A
// scheduled or dead message is copied to the next epoch. There an o_ row leads to the copy: the key
// of the row has the id of the old message. All other messages of an earlier epoch are final.

// CopyID returns the part of an o_ row's key that names the old message: <epoch>.<lane>.<seq>.
func CopyID(id weir.ID) string { return fmt.Sprintf("%d.%d.%d", id.Epoch, id.Lane, id.Seq) }

// storesSince returns the stores of an epoch and of all later epochs, in order; nil = the epoch is
// unknown.
func (s *Store) storesSince(epoch int) []*Store {
	var stores []*Store
	for _, e := range append(s.EarlierEpochs[:len(s.EarlierEpochs):len(s.EarlierEpochs)],
		s.Present()) {
		if e.Number == epoch || len(stores) > 0 {
			stores = append(stores, s.ForEpoch(e))
		}
	}

	return stores
}

// isCopied reports whether a message in this stage is copied to the next epoch when its lane
// closes.
func isCopied(stage weir.Stage) bool { return stage == weir.Scheduled || stage == weir.Dead }

// followCopies reads a message by its id: the row of its own epoch, or its last copy. It returns
// NotFound if there is no such message.
func (ms Messages) followCopies(ctx context.Context, id weir.ID) (*Entry, error) {
	copies, err := ms.readCopies(ctx, id)
	if err != nil {
		return nil, err
	}
	e := copies[len(copies)-1]
	return e, ms.store.rowsOf(e.Message.ID).fillFromPacked(ctx, e)
}

// readCopies reads the row of a message in its own epoch, and the rows of its copies in later
// epochs. The last entry has the present state of the message. But if only a packed row (d_) has
// the message's delivery, the entry lacks it.
func (ms Messages) readCopies(ctx context.Context, id weir.ID) ([]*Entry, error) {
	stores := ms.store.storesSince(id.Epoch)
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

	copies := []*Entry{e}
	for _, next := range stores[1:] {
		if !isCopied(e.Stage) {
			break
		}

		if e, err = next.readCopy(ctx, e); err != nil {
			return nil, err
		}

		copies = append(copies, e)
	}

	return copies, nil
}

// readCopy reads the copy of e. The entry e is a message of the previous epoch.
func (s *Store) readCopy(ctx context.Context, e *Entry) (*Entry, error) {
	lane := OfRow(e.row, s.Present())
	r, err := s.Table.Get(ctx, s.Partition(lane), rows.CopyPrefix+CopyID(e.Message.ID))
	if err != nil {
		return nil, err
	}
	return s.ReadMessage(ctx, lane, rows.Seq.Of(r.Values))
}

// findRepeat looks for an idempotency key in earlier epochs, so that a message is not appended
// again in a later epoch. Earlier epochs get no new idempotency rows. So if findRepeat finds
// nothing, no such row can appear before the append.
func (s *Store) findRepeat(ctx context.Context, m weir.Message, idempotencyKey string) (Receipt,
	bool, error) {
	if idempotencyKey == "" || len(s.EarlierEpochs) == 0 {
		return Receipt{}, false, nil
	}

	row, id, err := s.readEarlierIdempotency(ctx, m.Key, idempotencyKey)
	if err != nil {
		return Receipt{}, false, APIError("append", err)
	}
	if id.IsZero() {
		return Receipt{}, false, nil
	}

	if sum := sha256.Sum256(m.Body); !hasSameBody(row, hex.EncodeToString(sum[:])) {
		return Receipt{}, false, errOtherBody()
	}

	st, err := s.Messages().Status(ctx, id)
	if weir.KindOf(err) == weir.NotFound {
		return Receipt{}, false, nil // retention has just removed the message
	}

	return Receipt{Message: st.Message, Stage: st.Stage, Duplicate: true}, true, err
}

// hasSameBody reports whether an idempotency row belongs to a body with this hash. The row of an
// erased message has no hash. Then hasSameBody returns true, so that a repeated post is recognized.
func hasSameBody(row map[string]any, bodyHash string) bool {
	known := rows.BodyHash.Of(row)
	return known == "" || known == bodyHash
}

// readEarlierIdempotency looks for an idempotency row in all earlier epochs. It returns the values
// of the row, and the id of the message. The zero id means that no earlier epoch has the row.
func (s *Store) readEarlierIdempotency(ctx context.Context, key,
	idempotencyKey string) (map[string]any, weir.ID, error) {
	found, errs := make([]storage.Row, len(s.EarlierEpochs)), make([]error, len(s.EarlierEpochs))
	var wg sync.WaitGroup
	for i, e := range s.EarlierEpochs {
		wg.Go(func() {
			errs[i] = panics.Catch(func() (err error) {
				found[i], err = s.Table.Get(ctx, rows.Partition(e.Number, OfKey(key, e)),
					idempotencyKeyRow(key, idempotencyKey))
				return err
			})
		})
	}

	wg.Wait()

	for i, err := range errs {
		if err == nil {
			v, e := found[i].Values, s.EarlierEpochs[i]
			return v, weir.ID{Epoch: e.Number, Lane: OfKey(key, e), Seq: rows.Seq.Of(v),
				Nonce: rows.Nonce.Of(v)}, nil
		}

		if !storage.Is(err, storage.NotFound) {
			return nil, weir.ID{}, err
		}
	}

	return nil, weir.ID{}, nil
}
