package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/panics"
	"weir/internal/poll"
	"weir/internal/relane"
)

// DrainLanes drains all lanes, and returns a result for each lane. The drain of a lane ends when no
// message of the lane can be sent now. If the drainer or the notifier cannot be closed, DrainLanes
// returns an error, but also all results.
func (a *App) DrainLanes(ctx context.Context) ([]poll.DrainResult, error) {
	store, err := a.openStore(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("storage could not be opened: %w", err)
	}

	notifier := a.newNotifier(store)
	drainer := drain.New(a.drainConfig(store, a.newTickets(store)))
	results := make([]poll.DrainResult, a.settings.Lanes)
	var all sync.WaitGroup
	for n := range results {
		all.Go(func() {
			err := panics.Catch(func() error {
				results[n] = poll.DrainLane(ctx, store, drainer, n, time.Now)
				return nil
			})
			if err != nil {
				results[n] = poll.DrainResult{Lane: n, Err: err}
			}
		})
	}

	all.Wait()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()

	return results, errors.Join(drainer.Close(limited), closeNotifier(limited, notifier))
}

// NewResharder returns a Resharder, which changes the number of lanes. The Resharder calls progress
// with each report for the user.
func (a *App) NewResharder(progress func(string)) relane.Resharder {
	return relane.Resharder{
		Store: &lane.Store{Table: a.account.Table(), Bodies: a.account.Bodies(), Now: time.Now,
			Contracts: a.contractNames(), Damages: a.damages},
		Leases: a.account.Leases(), Lease: time.Duration(a.settings.Lease),
		Settle: a.settings.SettleTime(), Log: a.log,
		Drainer: func(store *lane.Store) relane.Drainer {
			store.Notifier = deadReceivers{a.newNotifier(store)}
			return drain.New(a.drainConfig(store, a.newTickets(store)))
		},
		Progress: progress,
	}
}
