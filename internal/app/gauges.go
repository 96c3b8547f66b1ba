package app

import (
	"context"
	"net/http"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/lists"
)

const (
	// gaugesMaxAge is the shortest time between two refreshes. A scrape or an export within this
	// time reads no lane.
	gaugesMaxAge = 30 * time.Second
	// gaugesTimeout bounds a refresh. The gauges of a lane that was not read in time keep their
	// values.
	gaugesTimeout = 2 * time.Second
)

// laneGauges reads the lanes before metrics are scraped or exported. The sweep sets the same
// gauges, but the sweep runs on only one instance at a time. On Flex Consumption, no scrape reaches
// the instance with the sweep, and this instance can end before it exports its gauges.
type laneGauges struct {
	readLane func(ctx context.Context, number int) error
	lanes    int
	now      func() time.Time

	mu     sync.Mutex
	readAt time.Time // time of the last refresh; zero = there was none
}

// newLaneGauges returns the gauges of all lanes: waiting messages, the age of the oldest waiting
// message, and pauses.
func (r *running) newLaneGauges() *laneGauges {
	return &laneGauges{lanes: r.settings.Lanes, now: time.Now,
		readLane: func(ctx context.Context, number int) error {
			control, err := r.store.ReadControl(ctx, number)
			if err != nil {
				return err
			}

			oldest, err := lists.Reader{Store: r.store}.OldestWaitingSince(ctx, number, control)
			if err != nil {
				return err
			}

			refused, err := r.overview.ReadRefusedKeys(ctx, number, control)
			if err != nil {
				return err
			}

			r.instruments.recordLane(number, control, oldest, time.Now(), refused)

			return nil
		}}
}

// refreshGauges refreshes the gauges, except in a process that is no server or has begun to stop.
// The last export of a process must not wait for storage.
func (a *App) refreshGauges(ctx context.Context) {
	if r := a.running.Load(); r != nil && r.gauges != nil && r.serving.Err() == nil {
		r.gauges.refreshGauges(ctx)
	}
}

// refreshBefore returns a handler that refreshes the gauges before it calls next.
func (g *laneGauges) refreshBefore(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.refreshGauges(r.Context())
		next.ServeHTTP(w, r)
	})
}

// refreshGauges reads all lanes, unless the last refresh began less than gaugesMaxAge ago. If a
// lane cannot be read, its gauges keep their values.
func (g *laneGauges) refreshGauges(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if !g.readAt.IsZero() && now.Sub(g.readAt) < gaugesMaxAge {
		return
	}

	g.readAt = now
	ctx, cancel := context.WithTimeout(ctx, gaugesTimeout)
	defer cancel()
	_ = lane.ForEach(g.lanes, func(number int) error {
		_ = g.readLane(ctx, number) // if one lane cannot be read, the other lanes are still read
		return nil
	})
}
