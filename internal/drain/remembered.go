package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

// maxRemembered bounds rememberedIDs.byKey: a full map is cleared, and ids are read from storage again.
const maxRemembered = 10_000

// rememberedIDs caches the remembered ids of a session. A remembered id is the CMS's id of a key's item, which an
// earlier message of the key has learned.
type rememberedIDs struct {
	laneScope
	isUsedBy func(contract string) bool // see Config.Remembers
	byKey    map[string]lane.Remembered // by Entry.RememberedKey; zero = storage has none
}

// readID returns the remembered id for a message. It returns the zero value if there is none, or if the contract of the
// message does not use remembered ids.
func (m *rememberedIDs) readID(ctx context.Context, e *lane.Entry) (lane.Remembered, error) {
	if !m.isUsed(e) {
		return lane.Remembered{}, nil
	}
	key := e.RememberedKey()
	if id, ok := m.byKey[key]; ok {
		return id, nil
	}
	id, err := m.store.DeliveryState().ReadRememberedFor(ctx, m.lane, e)
	if err == nil {
		m.keepID(key, id)
	}
	return id, err
}

func (m *rememberedIDs) isUsed(e *lane.Entry) bool {
	return m.isUsedBy != nil && m.isUsedBy(e.Message.Contract)
}

func (m *rememberedIDs) keepID(key string, id lane.Remembered) {
	if len(m.byKey) >= maxRemembered {
		clear(m.byKey)
	}
	m.byKey[key] = id
}

// recordResult updates the remembered id after an attempt. If the attempt learned a new id, recordResult saves the id.
// If the attempt learned no id, and found that the item of the known id is gone, recordResult removes the known id. In
// both cases ch.Key makes the next message of the key wait for the commit. Otherwise one transaction could both write
// and remove the id's row.
func (m *rememberedIDs) recordResult(c *candidate, ch *lane.Change, result weir.Result) {
	var next lane.Remembered
	switch {
	case !m.isUsed(c.entry):
		return
	case result.RememberedID != "" && result.RememberedID != c.remembered.ID:
		next = ch.SaveRemembered(c.entry, result.RememberedID, c.remembered)
	case result.IsForgotten && result.RememberedID == "" && c.remembered.ID != "":
		ch.ForgetRemembered(c.remembered)
	default:
		return
	}
	ch.Key = c.entry.KeyHash()
	m.keepID(c.entry.RememberedKey(), next)
}

// forgetID grants a request to forget a remembered id. It also removes the id from memory, so that the next message is
// not written to the item with that id.
func (h *requestHandler) forgetID(ctx context.Context, r lane.Request, ch *lane.Change) error {
	key := r.RememberedKey()
	id, err := h.store.DeliveryState().ReadRemembered(ctx, h.lane, key)
	if err != nil {
		return err
	}
	h.ids.keepID(key, lane.Remembered{})
	if id == "" {
		return nil
	}
	ch.RemoveRemembered(key)
	h.log.Info("drain: remembered id forgotten", "fence", h.fence)
	return nil
}
