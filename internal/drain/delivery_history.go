package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

// trackedKeys has the keys whose deliveries are recorded. All keys with dead messages are among them. The next session
// of this process reuses the keys, unless another process has held the lane in between.
type trackedKeys struct {
	keys   map[string]bool // by hash
	isFull bool            // there are too many keys: each key counts as tracked
}

func (t *trackedKeys) hasKey(keyHash string) bool { return t.isFull || t.keys[keyHash] }

// addKey tracks a key. If lane.MaxDeadKeys are tracked, it tracks all keys from then on, as a holder
// does that finds so many in storage.
func (t *trackedKeys) addKey(keyHash string) {
	if t.isFull {
		return
	}
	if t.keys[keyHash] = true; len(t.keys) > lane.MaxDeadKeys {
		t.keys, t.isFull = nil, true
	}
}

// deliveryHistory records the last delivery of each tracked key. A replay without force is refused if a message that is
// later in the key's order was delivered.
type deliveryHistory struct {
	laneScope
	tracked *trackedKeys
}

// loadTracked reads the keys with dead messages from storage, unless the last session's keys are reused.
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

// readLastPos returns the position of the last recorded delivery of an entry's key; "" = none is recorded. For most
// messages it returns "" without a read. It reads only for a message that was replayed, or whose contract has
// onFailure: skip, because only such a message can be sent after a later message of its key.
func (h *deliveryHistory) readLastPos(ctx context.Context, e *lane.Entry) (string, error) {
	if !h.tracked.hasKey(e.KeyHash()) || (!e.IsReplayed() && !e.Message.Skip) {
		return "", nil
	}
	l, err := h.store.DeliveryState().ReadLastDelivery(ctx, h.lane, e.KeyHash())
	return l.OrderPos, err
}

// recordFinal tracks the key of a message that becomes dead. If a message of a tracked key is delivered, recordFinal
// adds the record of the delivery to the change. It adds none if a message that is later in the key's order was
// delivered already.
func (h *deliveryHistory) recordFinal(c *candidate, ch *lane.Change, stage weir.Stage) {
	key := c.entry.KeyHash()
	switch {
	case stage == weir.Dead:
		h.tracked.addKey(key)
	case h.tracked.hasKey(key) && c.entry.AsHeld().OrderPos >= c.lastPos:
		ch.SaveLastDelivery(c.entry)
	}
}
