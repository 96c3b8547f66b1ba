package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

// maxRemembered bounds the ids that a session has in memory. Beyond that number it drops them and reads them again.
const maxRemembered = 10_000

// rememberedIDs has the remembered ids, as far as a session knows them.
type rememberedIDs struct {
	laneScope
	isUsedBy func(contract string) bool // see Config.Remembers
	byKey    map[string]string          // by Entry.RememberedKey; "" = there is none
}

// readID returns the remembered id for a message; "" = there is none, or the message's contract uses none.
func (m *rememberedIDs) readID(ctx context.Context, e *lane.Entry) (string, error) {
	if !m.isUsed(e) {
		return "", nil
	}
	key := e.RememberedKey()
	if id, ok := m.byKey[key]; ok {
		return id, nil
	}
	id, err := m.store.DeliveryState().ReadRemembered(ctx, m.lane, key)
	if err == nil {
		m.keepID(key, id)
	}
	return id, err
}

func (m *rememberedIDs) isUsed(e *lane.Entry) bool {
	return m.isUsedBy != nil && m.isUsedBy(e.Message.Contract)
}

func (m *rememberedIDs) keepID(key, id string) {
	if len(m.byKey) >= maxRemembered {
		clear(m.byKey)
	}
	m.byKey[key] = id
}

// recordResult adds to the change of an attempt's outcome the id that the attempt learned. If the attempt learned none
// and found the item of the known id gone, recordResult removes the id. In both cases the key becomes pending, so that
// no transaction both writes and removes the row of the id.
func (m *rememberedIDs) recordResult(c *candidate, ch *lane.Change, result weir.Result) {
	switch {
	case !m.isUsed(c.entry):
		return
	case result.RememberedID != "" && result.RememberedID != c.rememberedID:
		ch.SaveRemembered(c.entry, result.RememberedID)
	case result.IsForgotten && result.RememberedID == "" && c.rememberedID != "":
		ch.RemoveRemembered(c.entry.RememberedKey())
	default:
		return
	}
	ch.Key = c.entry.KeyHash()
	m.keepID(c.entry.RememberedKey(), result.RememberedID)
}

// forgetID grants a request to forget a remembered id. The session forgets the id, too. Otherwise the next message
// would still be written to the item of that id.
func (h *requestHandler) forgetID(ctx context.Context, r lane.Request, ch *lane.Change) error {
	key := r.RememberedKey()
	id, err := h.store.DeliveryState().ReadRemembered(ctx, h.lane, key)
	if err != nil || id == "" {
		return err
	}
	ch.RemoveRemembered(key)
	h.ids.keepID(key, "")
	h.log.Info("drain: remembered id forgotten", "fence", h.fence)
	return nil
}
