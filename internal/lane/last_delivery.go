package lane

import (
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// A replay must not overwrite a newer message of the key. So for each key with dead messages the holder stores the
// position of the last delivery in a row (l_), in the commit of that delivery. The row is removed only with the lane.
//
// A holder of an earlier version of the program stores no such rows, and writes no HistoryFence into tail. The next
// holder of the present version sets HistoryFence to its own fence. If the last attempt of a message has a lower fence
// than HistoryFence, it can be unknown whether a later message of the key was delivered.

// LastDelivery names the delivered message with the greatest position in its key's order.
type LastDelivery struct {
	OrderPos string // "" = no delivery is recorded
	ID       weir.ID
}

// ReadLastDelivery reads the last delivery of a key. It returns the zero value if no delivery is recorded.
func (ds DeliveryState) ReadLastDelivery(ctx context.Context, lane int, keyHash string) (LastDelivery, error) {
	r, err := ds.store.Table.Get(ctx, ds.store.Partition(lane), rows.LastDeliveryPrefix+keyHash)
	if storage.Is(err, storage.NotFound) {
		return LastDelivery{}, nil
	}
	return lastDeliveryFrom(weir.ID{Epoch: ds.store.Epoch, Lane: lane}, r.Values), err
}

// lastDeliveryFrom returns the last delivery in the values v of a row (l_). origin has the row's epoch and lane.
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

// unknownHistory is the text in place of a message's id, if it is unknown whether a later message of the key was
// delivered.
const unknownHistory = "unknown"

// replayBlockedBy returns the id of a later message of the key that was delivered, or unknownHistory. It returns "" if
// nothing blocks a replay: no later message was delivered, or the contract has onFailure: skip. l is the key's last
// delivery, and historyFence is Tail.HistoryFence.
func (e *Entry) replayBlockedBy(l LastDelivery, historyFence int64) string {
	switch known := rows.ReplayBlockedBy.Of(e.row); {
	case e.Message.Skip:
		return ""
	case known != "" && known != unknownHistory: // recorded in an earlier epoch, from which the message was copied
		return known
	case l.OrderPos > e.orderPos():
		return l.ID.String()
	case known == unknownHistory || e.isHistoryUnknown(historyFence):
		return unknownHistory
	}
	return ""
}

// isHistoryUnknown reports whether a process of an earlier version of the program can have held the lane after the
// message's last attempt. Such a process stored no last deliveries.
func (e *Entry) isHistoryUnknown(historyFence int64) bool {
	return historyFence == 0 || e.lastFence() < historyFence
}

// lastFence returns the fence of the last attempt, or 0 if there was no attempt.
func (e *Entry) lastFence() int64 {
	if len(e.Attempts) == 0 {
		return 0
	}
	return e.Attempts[len(e.Attempts)-1].Fence
}

// ReplayObstacle returns the reason why a dead message must not be replayed, or "" if a replay is allowed. historyFence
// is Tail.HistoryFence.
func (s *Store) ReplayObstacle(ctx context.Context, e *Entry, historyFence int64) (string, error) {
	l, err := s.DeliveryState().ReadLastDelivery(ctx, e.Message.ID.Lane, e.keyHash)
	if err != nil {
		return "", err
	}
	switch late := e.replayBlockedBy(l, historyFence); late {
	case "":
		return "", nil
	case unknownHistory:
		return "it is not known whether a later message of its key was delivered since: " +
			"an earlier version of the program kept no record of that", nil
	default:
		return "a later message of its key was delivered: " + late, nil
	}
}

// ReplayBlocks decides which dead messages of a closed lane must not be replayed. The decision is stored with the copy
// of each message in the next epoch: the copy has a new position, which cannot be compared with the old lane's
// deliveries.
type ReplayBlocks struct {
	store          *Store
	lane           int
	lastDeliveries map[string]LastDelivery // by the hash of the key
	historyFence   int64
}

// ReadReplayBlocks reads the last deliveries of all keys of a closed lane.
func (ds DeliveryState) ReadReplayBlocks(ctx context.Context, lane int) (ReplayBlocks, error) {
	c, err := ds.store.ReadControl(ctx, lane)
	if err != nil {
		return ReplayBlocks{}, err
	}
	all := map[string]LastDelivery{}
	q := rows.WithPrefix(ds.store.Partition(lane), rows.LastDeliveryPrefix, nil)
	for r, err := range rows.Scan(ctx, ds.store.Table, q) {
		if err != nil {
			return ReplayBlocks{}, err
		}
		all[r.Key[len(rows.LastDeliveryPrefix):]] = lastDeliveryFrom(weir.ID{Epoch: ds.store.Epoch, Lane: lane},
			r.Values)
	}
	return ReplayBlocks{ds.store, lane, all, c.Tail.HistoryFence}, nil
}

// BlockedBy returns the value of the column rows.ReplayBlockedBy for the copy of a dead message. The value is the id of
// a later message of the key that was delivered, or unknownHistory, or "" if a replay is allowed. row is the dead
// message's row (m_) in the closed lane.
func (b ReplayBlocks) BlockedBy(row storage.Row) (string, error) {
	e, err := b.store.entryFrom(b.lane, row)
	if err != nil {
		return "", err
	}
	return e.replayBlockedBy(b.lastDeliveries[e.keyHash], b.historyFence), nil
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
