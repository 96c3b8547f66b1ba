package lane

import (
	"context"
	"strings"

	"weir/internal/lane/rows"
)

// The order of keys does not go from lane to lane: a copy has a position of its own in the new lane. So a
// delivery that forbids the replay of a dead message is recorded in its copy.

// keyOrder is the knowledge of a closed lane about deliveries of its keys.
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
