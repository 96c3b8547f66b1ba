package app

import (
	"context"
	"net/http"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/overview/lists"
)

const (
	// gaugesMaxAge is the shortest time between two refreshes. More frequent scrapes and exports read no lane.
	gaugesMaxAge = 30 * time.Second
	// gaugesTimeout bounds a refresh. The gauges of a lane that was not read in time keep their values.
	gaugesTimeout = 2 * time.Second
)

// laneGauges reads the lanes before metrics are scraped or exported. The sweep sets the same gauges, but the
// timer triggers only one instance at a time. On Flex Consumption that instance serves no HTTP, so its gauges are
// never scraped, and it may end before it exports them.
type laneGauges struct {
	readLane func(ctx context.Context, number int) error
	lanes    int
	now      func() time.Time

	mu     sync.Mutex
	readAt time.Time // time of the last refresh; zero = there was none
}

// newLaneGauges returns the gauges of all lanes: waiting messages, the age of the oldest one, and pauses.
func (r *running) newLaneGauges() *laneGauges {
	return &laneGauges{lanes: r.settings.Lanes, now: time.Now, readLane: func(ctx context.Context, number int) error {
		control, err := r.store.ReadControl(ctx, number)
		if err != nil {
			return err
		}
		oldest, err := lists.Reader{Store: r.store}.OldestWaitingSince(ctx, number, control)
		if err != nil {
			return err
		}
		r.instruments.recordLane(number, control, oldest, time.Now())
		return nil
	}}
}

// refreshGauges refreshes the gauges if this process is a server that has not begun to stop. The last export of a
// process that stops must not wait for storage that does not answer.
func (a *App) refreshGauges(ctx context.Context) {
	if r := a.running.Load(); r != nil && r.gauges != nil && r.serving.Err() == nil {
		r.gauges.refreshGauges(ctx)
	}
}

// refreshBefore refreshes the gauges before a request goes on to the handler "next".
func (g *laneGauges) refreshBefore(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.refreshGauges(r.Context())
		next.ServeHTTP(w, r)
	})
}

// refreshGauges reads all lanes, unless the last refresh began less than gaugesMaxAge ago. If a lane cannot be read,
// its gauges keep their values, and the counters of storage requests show the failure.
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
