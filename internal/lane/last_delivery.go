package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// A replay must not overwrite a newer message of the key. So for each key with dead messages the
// holder stores the position of the last delivery in a row (l_), in the commit of that delivery.
// Retention removes the row when it is of no use any more (removeLastDeliveries).

// LastDelivery names the delivered message with the greatest position in its key's order.
type LastDelivery struct {
	OrderPos string // "" = no delivery is recorded
	ID       weir.ID
}

// ReadLastDelivery reads the last delivery of a key. It returns the zero value if no delivery is
// recorded.
func (ds DeliveryState) ReadLastDelivery(ctx context.Context, lane int,
	keyHash string) (LastDelivery, error) {
	r, err := ds.store.Table.Get(ctx, ds.store.Partition(lane), rows.LastDeliveryPrefix+keyHash)
	if storage.Is(err, storage.NotFound) {
		return LastDelivery{}, nil
	}
	return lastDeliveryFrom(weir.ID{Epoch: ds.store.Epoch, Lane: lane}, r.Values), err
}

// lastDeliveryFrom returns the last delivery in the values v of a row (l_). origin has the row's
// epoch and lane.
func lastDeliveryFrom(origin weir.ID, v map[string]any) LastDelivery {
	return LastDelivery{OrderPos: rows.OrderPos.Of(v), ID: idFrom(origin, v)}
}

// SaveLastDelivery records the entry's message as its key's last delivery.
func (c *Change) SaveLastDelivery(e *Entry) {
	id := e.Message.ID
	c.ops = append(c.ops, storage.Op{Kind: storage.Upsert, Key: rows.LastDeliveryPrefix + e.keyHash,
		Values: rows.Sparse(
			rows.OrderPos.Is(e.orderPos()), rows.Seq.Is(id.Seq), rows.Nonce.Is(id.Nonce),
			rows.Origin.Is(originText(&e.Message)))})
}

// replayBlockedBy returns the id of a later message of the key that was delivered. It returns "" if
// nothing blocks a replay: no later message was delivered, or the contract has onFailure: skip. l
// is the key's last delivery. The entry must have its whole row.
func (e *Entry) replayBlockedBy(l LastDelivery) string {
	switch blocker := rows.ReplayBlockedBy.Of(e.row); {
	case e.Message.Skip:
		return ""
	case blocker != "": // recorded in an earlier epoch, from which the message was copied
		return blocker
	case l.OrderPos > e.orderPos():
		return l.ID.String()
	}

	return ""
}

// ReplayObstacle returns the reason why a dead message must not be replayed, or "" if a replay is
// allowed. The entry must have its whole row, as ReadMessage returns it: rows of lists lack the
// obstacles of earlier epochs.
func (s *Store) ReplayObstacle(ctx context.Context, e *Entry) (string, error) {
	if e.isHeaderOnly {
		return "", errors.New("lane: the obstacles to a replay are not among the columns of lists")
	}

	l, err := s.DeliveryState().ReadLastDelivery(ctx, e.Message.ID.Lane, e.keyHash)
	if err != nil {
		return "", err
	}

	if later := e.replayBlockedBy(l); later != "" {
		return "a later message of its key was delivered: " + later, nil
	}

	return "", nil
}

// ReplayBlocks decides which dead messages of a closed lane must not be replayed. The decision is
// stored with the copy of each message in the next epoch: the copy has a new position, which cannot
// be compared with the old lane's deliveries.
type ReplayBlocks struct {
	store          *Store
	lane           int
	lastDeliveries map[string]LastDelivery // by the hash of the key
}

// ReadReplayBlocks reads the last deliveries of all keys of a closed lane.
func (ds DeliveryState) ReadReplayBlocks(ctx context.Context, lane int) (ReplayBlocks, error) {
	all := map[string]LastDelivery{}
	q := rows.WithPrefix(ds.store.Partition(lane), rows.LastDeliveryPrefix, nil)
	for r, err := range rows.Scan(ctx, ds.store.Table, q) {
		if err != nil {
			return ReplayBlocks{}, err
		}
		all[r.Key[len(rows.LastDeliveryPrefix):]] = lastDeliveryFrom(weir.ID{Epoch: ds.store.Epoch,
			Lane: lane}, r.Values)
	}

	return ReplayBlocks{ds.store, lane, all}, nil
}

// BlockedBy returns the value of the column rows.ReplayBlockedBy for the copy of a dead message.
// The value is the id of a later message of the key that was delivered, or "" if a replay is
// allowed. row is the dead message's row (m_) in the closed lane.
func (b ReplayBlocks) BlockedBy(row storage.Row) (string, error) {
	e, isWhole := b.store.entryFrom(b.lane, row)
	if !isWhole {
		return "", fmt.Errorf("lane: the key of row %q is damaged", row.Key)
	}
	return e.replayBlockedBy(b.lastDeliveries[e.keyHash]), nil
}

func earlierOf(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
