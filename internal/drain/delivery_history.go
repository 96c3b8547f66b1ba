package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

// trackedKeys has the keys whose deliveries are recorded: all keys with dead messages, and perhaps some more. The next
// session of this process takes them over if no other process has held the lane in between.
type trackedKeys struct {
	keys   map[string]bool // by hash
	isFull bool            // there are too many keys: each key counts as tracked
}

func (t *trackedKeys) hasKey(keyHash string) bool { return t.isFull || t.keys[keyHash] }

// addKey adds the key of a message that becomes dead.
func (t *trackedKeys) addKey(keyHash string) {
	if !t.isFull {
		t.keys[keyHash] = true
	}
}

// deliveryHistory records the last delivery of each tracked key. The record serves replays: if a later message of a
// dead message's key was delivered, the replay of the dead message is refused unless it is forced.
type deliveryHistory struct {
	laneScope
	tracked    *trackedKeys
	sinceFence int64 // all holders since this fence have recorded; see lane.Tail.HistoryFence
}

// loadTracked reads the keys with dead messages from storage, unless the last session's keys were taken over.
func (h *deliveryHistory) loadTracked(ctx context.Context, t lane.Tail) error {
	if h.tracked != nil {
		return nil
	}
	h.tracked = &trackedKeys{keys: map[string]bool{}}
	if t.Counts.Dead == 0 {
		return nil
	}
	keys, all, err := h.store.DeliveryState().ReadDeadKeys(ctx, h.lane)
	if err != nil {
		return err
	}
	h.tracked = &trackedKeys{keys: keys, isFull: all}
	return nil
}

// readLastPos returns the position of the last recorded delivery of an entry's key, if that may be behind the entry's
// own position. It may be if the entry was replayed, or if its contract lets later messages go ahead. If it may not be,
// or if no delivery is recorded, readLastPos returns "".
func (h *deliveryHistory) readLastPos(ctx context.Context, e *lane.Entry) (string, error) {
	if !h.tracked.hasKey(e.KeyHash()) || (!e.IsReplayed() && !e.Message.Skip) {
		return "", nil
	}
	l, err := h.store.DeliveryState().ReadLastDelivery(ctx, h.lane, e.KeyHash())
	return l.OrderPos, err
}

// recordFinal tracks the key of a message that becomes dead. If a message of a tracked key is delivered, recordFinal
// adds the record of the delivery to the change, unless a later message of the key was delivered before.
func (h *deliveryHistory) recordFinal(c *candidate, ch *lane.Change, stage weir.Stage) {
	key := c.entry.KeyHash()
	switch {
	case stage == weir.Dead:
		h.tracked.addKey(key)
	case h.tracked.hasKey(key) && c.entry.AsHeld().OrderPos >= c.lastPos:
		ch.SaveLastDelivery(c.entry)
	}
}
