package lane

import (
	"context"
	"strings"

	"weir/internal/lane/rows"
)

// The order of keys does not go from lane to lane: a copy has its place in the new one. So
// what a later message's delivery says against the replay of a dead one is written into its
// copy.

// keyOrder is what a closed lane knows of that.
type keyOrder struct {
	lastDeliveries map[string]LastDelivery
	historyFence   int64
}

func (r *EpochCopy) readKeyOrder(ctx context.Context, lane int) (keyOrder, error) {
	c, err := r.From.ReadControl(ctx, lane)
	if err != nil {
		return keyOrder{}, err
	}
	lasts, err := r.From.readLastDeliveries(ctx, lane)
	return keyOrder{lasts, c.Tail.HistoryFence}, err
}

// recordReplayBlocks writes it down for the dead ones among some messages.
func (o keyOrder) recordReplayBlocks(s *Store, list []*copiedMessage) error {
	for _, m := range list {
		if m.row.Key == "" || !strings.HasPrefix(m.index.Key, rows.DeadPrefix) {
			continue
		}
		e, err := s.entryFrom(m.id.Lane, m.row)
		if err != nil {
			return err
		}
		m.blockedBy = e.replayBlockedBy(o.lastDeliveries[e.keyHash], o.historyFence)
	}
	return nil
}

// orderPos is the message's position among the others.
func (m *copiedMessage) orderPos() string {
	if place := rows.OrderPos.Of(m.index.Values); place != "" {
		return place
	}
	return rows.SeqPos(m.id.Seq)
}
