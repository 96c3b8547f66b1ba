package lane

import (
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// A replayed message goes before the waiting messages of its key, but it must not follow a later message that
// was delivered. So for each key with dead messages the holder writes the position of the last delivery (l_
// rows), in the commit of that delivery. These rows are removed only with the lane. Other keys need no such row.
//
// A holder of an earlier version does not write l_ rows, and writes a tail without HistoryFence. Then it is not
// known whether a later message was delivered.

// LastDelivery is the delivered message with the last position in the order of a key.
type LastDelivery struct {
	OrderPos string // "" = no delivery was recorded
	ID       weir.ID
}

// ReadLastDelivery reads the last delivery of a key.
func (ds DeliveryState) ReadLastDelivery(ctx context.Context, lane int, keyHash string) (LastDelivery, error) {
	r, err := ds.store.Table.Get(ctx, ds.store.Partition(lane), rows.LastDeliveryPrefix+keyHash)
	if storage.Is(err, storage.NotFound) {
		return LastDelivery{}, nil
	}
	return lastDeliveryFrom(weir.ID{Epoch: ds.store.Epoch, Lane: lane}, r.Values), err
}

// lastDeliveryFrom returns the last delivery of an l_ row. origin has the epoch and lane of the row.
func lastDeliveryFrom(origin weir.ID, v map[string]any) LastDelivery {
	return LastDelivery{OrderPos: rows.OrderPos.Of(v), ID: idFrom(origin, v)}
}

// SaveLastDelivery records the delivery of a message as the last delivery in the order of its key.
func (c *Change) SaveLastDelivery(e *Entry) {
	id := e.Message.ID
	c.ops = append(c.ops, storage.Op{Kind: storage.Upsert, Key: rows.LastDeliveryPrefix + e.keyHash,
		Values: rows.Sparse(
			rows.OrderPos.Is(e.orderPos()), rows.Seq.Is(id.Seq), rows.Nonce.Is(id.Nonce),
			rows.Origin.Is(originText(&e.Message)))})
}

// unknownHistory stands in place of an id if it is not known whether a later message was delivered.
const unknownHistory = "unknown"

// replayBlockedBy returns the id of a later message of the key that was delivered, or unknownHistory; "" = there is
// no such message, or the contract lets later messages go ahead. historyFence is Tail.HistoryFence.
func (e *Entry) replayBlockedBy(l LastDelivery, historyFence int64) string {
	switch known := rows.ReplayBlockedBy.Of(e.row); {
	case e.Message.Skip:
		return ""
	case known != "" && known != unknownHistory: // recorded before the message was copied here
		return known
	case l.OrderPos > e.orderPos():
		return l.ID.String()
	case known == unknownHistory || e.isHistoryUnknown(historyFence):
		return unknownHistory
	}
	return ""
}

// isHistoryUnknown reports whether deliveries of the key since the message died may be missing in the l_ rows,
// because a holder ran a version that did not write them.
func (e *Entry) isHistoryUnknown(historyFence int64) bool {
	return historyFence == 0 || e.lastFence() < historyFence
}

// lastFence returns the fence of the last attempt; 0 = there was no attempt.
func (e *Entry) lastFence() int64 {
	if len(e.Attempts) == 0 {
		return 0
	}
	return e.Attempts[len(e.Attempts)-1].Fence
}

// ReplayObstacle returns the reason for which a dead message must not be replayed; "" = it may be replayed.
// historyFence is Tail.HistoryFence.
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

// ReplayBlocks has the last deliveries of the keys of one lane, and decides which of the lane's dead messages must
// not be replayed. It is for messages that are copied into another lane, in which they get other positions.
type ReplayBlocks struct {
	store          *Store
	lane           int
	lastDeliveries map[string]LastDelivery // the hash of a key → its last delivery
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

// BlockedBy returns the value of rows.ReplayBlockedBy for the copy of a dead message: the id of a later message of
// its key that was delivered, or unknownHistory; "" = the message may be replayed. row is its m_ row.
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
