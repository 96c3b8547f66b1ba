package main

import (
	"context"
	"net/http"
	"time"

	"weir/functions/view"
	"weir/functions/write"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/replay"
	"weir/internal/weir"
)

// bulk adds what brings many dead messages back, and the runner that does it.
func (o *operator) bulk() {
	runner := o.newReplays(o.store, o.call.Call)
	o.Program.replays.Store(runner)
	o.mux.Handle("/api/replays", httpio.ByMethod(map[string]http.Handler{
		http.MethodGet:  o.reading(&view.Replays{Jobs: runner, Logger: o.log}),
		http.MethodPost: o.changing(&write.Replays{Jobs: runner, Logger: o.log}),
	}))
	o.mux.Handle("/api/replays/{id}", httpio.ByMethod(map[string]http.Handler{
		http.MethodGet:    o.reading(&view.Replays{Jobs: runner, Logger: o.log}),
		http.MethodDelete: o.changing(&write.CancelReplays{Jobs: runner, Logger: o.log}),
	}))
}

// cancellations adds the address that cancels many waiting messages.
func (o *operator) cancellations() {
	o.write("/api/cancellations", "POST", &write.Cancellations{Log: o.store, Caller: o.call, Lanes: o.settings.Lanes, Now: time.Now, Logger: o.log})
}

func (p *Program) newReplays(store *lane.Store, call func(lane int)) *replay.Runner {
	return replay.New(replay.Config{
		Store: store, Log: replayLog{store}, Leases: p.account.Leases(), Lease: time.Duration(p.settings.Lease),
		Wake: call, Finished: p.replayFinished, Interval: time.Duration(p.settings.Delivery.Rate), Now: time.Now, Logger: p.log,
	})
}

// replayLog is the log as bulk replays need it.
type replayLog struct{ *lane.Store }

// Replay implements replay.Log.
func (l replayLog) Replay(ctx context.Context, id weir.ID, force bool) error {
	_, err := l.Store.Replay(ctx, id, lane.ReplayOptions{Force: force})
	return err
}
