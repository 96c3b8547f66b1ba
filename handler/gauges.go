package main

import (
	"context"
	"net/http"
	"sync"
	"time"

	"weir/internal/lane"
)

const (
	// gaugesGood is how long a look at the lanes is good for, however often metrics are asked for.
	gaugesGood = 30 * time.Second
	// gaugesLimit bounds such a look. The gauges of a lane that was not read by then keep their values.
	gaugesLimit = 2 * time.Second
)

// laneGauges looks at the lanes when metrics are asked for. The sweep shows them, too, but the timer
// runs on one instance at a time, and on Flex Consumption on none that answers HTTP requests.
type laneGauges struct {
	look  func(ctx context.Context, number int) error
	lanes int
	now   func() time.Time

	mu       sync.Mutex
	lookedAt time.Time
}

// Before refreshes the gauges, and then lets a request go on.
func (g *laneGauges) Before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.refreshGauges(r.Context())
		next.ServeHTTP(w, r)
	})
}

// refreshGauges reads all lanes, unless it did within gaugesGood. If a lane cannot be read, its gauges
// keep their values, and the counters of storage requests show the failure.
func (g *laneGauges) refreshGauges(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if !g.lookedAt.IsZero() && now.Sub(g.lookedAt) < gaugesGood {
		return
	}
	g.lookedAt = now
	ctx, cancel := context.WithTimeout(ctx, gaugesLimit)
	defer cancel()
	_ = lane.Each(g.lanes, func(number int) error {
		_ = g.look(ctx, number) // one lane's failure does not stop the others
		return nil
	})
}

// newLaneGauges shows waiting messages, the oldest one's age, and pauses, of all lanes.
func (p *Program) newLaneGauges(store *lane.Store) *laneGauges {
	return &laneGauges{lanes: p.settings.Lanes, now: time.Now, look: func(ctx context.Context, number int) error {
		control, err := store.Control(ctx, number)
		if err != nil {
			return err
		}
		oldest, err := store.Oldest(ctx, number, control)
		if err != nil {
			return err
		}
		p.show(number, control, oldest, time.Now())
		return nil
	}}
}
