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
	lasts   map[string]LastDelivery
	watched int64
}

func (r *EpochCopy) order(ctx context.Context, lane int) (keyOrder, error) {
	c, err := r.From.ReadControl(ctx, lane)
	if err != nil {
		return keyOrder{}, err
	}
	lasts, err := r.From.lasts(ctx, lane)
	return keyOrder{lasts, c.Tail.HistoryFence}, err
}

// note writes it down for the dead ones among some messages.
func (o keyOrder) note(s *Store, list []*refiled) error {
	for _, m := range list {
		if m.row.Key == "" || !strings.HasPrefix(m.index.Key, rows.DeadPrefix) {
			continue
		}
		e, err := s.entryFrom(m.id.Lane, m.row)
		if err != nil {
			return err
		}
		m.late = e.late(o.lasts[e.keyHash], o.watched)
	}
	return nil
}

// place is the message's position among the others.
func (m *refiled) place() string {
	if place := rows.OrderPos.Of(m.index.Values); place != "" {
		return place
	}
	return rows.SeqPos(m.id.Seq)
}
