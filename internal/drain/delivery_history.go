package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

// trackedKeys has the keys whose deliveries have to be recorded, because they have dead messages, and perhaps some more
// keys. The next session of the process takes them over if no other process has held the lane between.
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

// deliveryHistory records the last delivery of tracked keys. A replay of a dead message is refused
// if a later message of its key was delivered.
type deliveryHistory struct {
	laneScope
	tracked    *trackedKeys
	sinceFence int64 // the history is complete since this fence; see lane.Tail
}

// loadTracked reads the tracked keys from storage, if they are not known.
func (h *deliveryHistory) loadTracked(ctx context.Context, t lane.Tail) error {
	if h.tracked != nil {
		return nil
	}
	h.tracked = &trackedKeys{keys: map[string]bool{}}
	if t.Counts.Dead == 0 {
		return nil
	}
	keys, all, err := h.store.ReadDeadKeys(ctx, h.lane)
	if err != nil {
		return err
	}
	h.tracked = &trackedKeys{keys: keys, isFull: all}
	return nil
}

// readLastPos returns the position of the recorded delivery of an entry's key, if the entry may have an earlier
// position: it was replayed by force, or its contract lets later messages go ahead.
func (h *deliveryHistory) readLastPos(ctx context.Context, e *lane.Entry) (string, error) {
	if !h.tracked.hasKey(e.KeyHash()) || (!e.IsReplayed() && !e.Message.Skip) {
		return "", nil
	}
	l, err := h.store.ReadLastDelivery(ctx, h.lane, e.KeyHash())
	return l.OrderPos, err
}

// recordFinal adds to the change of a final message the record that replays of its key need.
func (h *deliveryHistory) recordFinal(c *candidate, ch *lane.Change, stage weir.Stage) {
	key := c.entry.KeyHash()
	switch {
	case stage == weir.Dead:
		h.tracked.addKey(key)
	case h.tracked.hasKey(key) && c.entry.AsHeld().OrderPos >= c.lastPos:
		ch.SaveLastDelivery(c.entry)
	}
}
