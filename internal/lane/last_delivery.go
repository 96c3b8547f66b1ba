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
// rows), in the commit of that delivery. These rows are never removed. Keys without dead messages have none.
//
// A holder of an earlier version does not write them, and writes a tail without HistoryFence. Then it is not
// known whether a later message was delivered.

// LastDelivery is the delivered message with the last position in the order of a key.
type LastDelivery struct {
	OrderPos string // "" = none was recorded
	ID       weir.ID
}

// ReadLastDelivery reads the last delivery of a key.
func (s *Store) ReadLastDelivery(ctx context.Context, lane int, keyHash string) (LastDelivery, error) {
	r, err := s.Table.Get(ctx, s.partitionOf(lane), rows.LastDeliveryPrefix+keyHash)
	if storage.Is(err, storage.NotFound) {
		return LastDelivery{}, nil
	}
	return s.lastDeliveryFrom(lane, r.Values), err
}

func (s *Store) lastDeliveryFrom(lane int, v map[string]any) LastDelivery {
	l := LastDelivery{OrderPos: rows.OrderPos.Of(v),
		ID: weir.ID{Epoch: s.Epoch, Lane: lane, Seq: rows.Seq.Of(v), Nonce: rows.Nonce.Of(v)}}
	if id := originFrom(rows.Origin.Of(v)); !id.IsZero() {
		l.ID = id
	}
	return l
}

// SaveLastDelivery records the delivery of a message as the last one in the order of its key.
func (c *Change) SaveLastDelivery(e *Entry) {
	id := e.Message.ID
	c.ops = append(c.ops, storage.Op{Kind: storage.Upsert, Key: rows.LastDeliveryPrefix + e.keyHash,
		Values: rows.Sparse(
			rows.OrderPos.Is(e.orderPos()), rows.Seq.Is(id.Seq), rows.Nonce.Is(id.Nonce),
			rows.Origin.Is(originText(&e.Message)))})
}

// unknownHistory replaces an id if it is not known whether a later message was delivered.
const unknownHistory = "unknown"

// replayBlockedBy returns the id of the later message of the key that was delivered after this one died; "" =
// there is none, or the contract lets later messages go ahead. watched is Tail.HistoryFence.
func (e *Entry) replayBlockedBy(l LastDelivery, watched int64) string {
	switch known := rows.ReplayBlockedBy.Of(e.row); {
	case e.Message.Skip:
		return ""
	case known != "" && known != unknownHistory: // recorded before the message was copied here
		return known
	case l.OrderPos > e.orderPos():
		return l.ID.String()
	case known == unknownHistory || e.isHistoryUnknown(watched):
		return unknownHistory
	}
	return ""
}

// isHistoryUnknown reports whether deliveries of the key were not recorded at any time since the message died,
// because a holder ran a version that kept no record.
func (e *Entry) isHistoryUnknown(watched int64) bool { return watched == 0 || e.lastFence() < watched }

// lastFence returns the fence of the last attempt.
func (e *Entry) lastFence() int64 {
	if len(e.Attempts) == 0 {
		return 0
	}
	return e.Attempts[len(e.Attempts)-1].Fence
}

// ReplayObstacle returns why a dead message must not be replayed; "" = it may be. historyFence is
// Tail.HistoryFence.
func (s *Store) ReplayObstacle(ctx context.Context, e *Entry, watched int64) (string, error) {
	l, err := s.ReadLastDelivery(ctx, e.Message.ID.Lane, e.keyHash)
	if err != nil {
		return "", err
	}
	switch late := e.replayBlockedBy(l, watched); late {
	case "":
		return "", nil
	case unknownHistory:
		return "it is not known whether a later message of its key was delivered since: an earlier version of the program kept no record of that", nil
	default:
		return "a later message of its key was delivered: " + late, nil
	}
}

// readLastDeliveries reads the last deliveries of all keys.
func (s *Store) readLastDeliveries(ctx context.Context, lane int) (map[string]LastDelivery, error) {
	all := map[string]LastDelivery{}
	q := rows.WithPrefix(s.partitionOf(lane), rows.LastDeliveryPrefix, nil)
	for r, err := range rows.Scan(ctx, s.Table, q) {
		if err != nil {
			return nil, err
		}
		all[r.Key[len(rows.LastDeliveryPrefix):]] = s.lastDeliveryFrom(lane, r.Values)
	}
	return all, nil
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
