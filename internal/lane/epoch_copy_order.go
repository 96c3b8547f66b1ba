package lane

import (
	"context"
	"strings"

	"weir/internal/lane/rows"
)

// A copy has a new position in the new lane, so positions of the two epochs cannot be compared. If a later
// delivery forbids the replay of a dead message, the copy records that.

// keyOrder has the known deliveries of the keys of a closed lane.
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

// recordReplayBlocks records in the dead messages of a list whether their replay is forbidden.
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

// orderPos returns the message's position in the order of its key.
func (m *copiedMessage) orderPos() string {
	if place := rows.OrderPos.Of(m.index.Values); place != "" {
		return place
	}
	return rows.SeqPos(m.id.Seq)
}
