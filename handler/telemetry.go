package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/telemetry"
	"weir/internal/weir"
)

// newMetrics makes the process's metrics.
func (p *Program) newMetrics() *telemetry.Metrics {
	cfg := telemetry.Config{Storage: p.counter, Build: buildOf(), Now: time.Now}
	for _, c := range p.settings.Contracts {
		cfg.Contracts = append(cfg.Contracts, c.Name)
	}
	return telemetry.NewMetrics(cfg)
}

func buildOf() telemetry.Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	v := versionOf(info)
	return telemetry.Build{Version: v.version, Commit: v.commit, GoVersion: runtime.Version()}
}

// flushTimeout is what sending the last spans and records may take. With stopTimeout it is
// less than the host waits.
const flushTimeout = 1500 * time.Millisecond

// flush sends what is left, whether or not ctx has ended.
func flush(ctx context.Context, e *telemetry.Export) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	e.Close(limited)
}

// exportTo has traces and metrics sent. Call it before the program runs.
func (p *Program) exportTo(ctx context.Context, e *telemetry.Export) {
	p.export = e
	e.Metrics(ctx, p.metrics.Registry)
}

// sender makes the attempts, and their spans.
func (p *Program) sender() drain.Sender {
	return p.export.Sender(p.client, p.settings.Delivery.Method, p.settings.Delivery.URL)
}

// offerTaker takes messages that were just filed.
type offerTaker interface {
	OfferAppended(lane int, messages []weir.Message)
	WakeOffered(lane int)
}

// newAppender makes an appender that counts the messages it files, and offers them to a drain.
func (p *Program) newAppender(store *lane.Store, offers offerTaker) *lane.Appender {
	a := lane.NewAppender(store, p.log)
	a.Filed = func(number int, messages []weir.Message) {
		offers.OfferAppended(number, messages)
		p.filed(number, messages)
	}
	a.Wake = offers.WakeOffered
	return a
}

// show shows what a look at a lane has seen.
func (p *Program) show(number int, c lane.Control, oldest, now time.Time) {
	_, operator := c.Paused(now)
	closed, _, _ := p.calendar.At(now)
	p.metrics.Saw(number, telemetry.LaneView{Waiting: c.Waiting(), Oldest: oldest,
		Paused: map[string]bool{"operator": operator, "calendar": closed, "cms": c.Tail.PausedUntil.After(now)}})
}
