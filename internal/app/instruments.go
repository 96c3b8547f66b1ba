package app

import (
	"context"
	"time"

	"weir/internal/calendar"
	"weir/internal/drain"
	"weir/internal/history"
	"weir/internal/lane"
	"weir/internal/notify"
	"weir/internal/overview"
	"weir/internal/settings"
	"weir/internal/storage/azure"
	"weir/internal/telemetry"
	"weir/internal/weir"
)

// instruments measure the process: metrics, traces, and the counters of the history.
type instruments struct {
	calendar *calendar.Calendar
	metrics  *telemetry.Metrics
	notified *notify.Metrics
	recorder *history.Recorder
	export   *telemetry.Export // nil = the process sends no data to a collector
}

// newInstruments returns instruments without an export. countEvents returns the number of events
// that wait for their receivers.
func newInstruments(s *settings.Settings, c *calendar.Calendar, storageCalls *azure.Counter,
	countEvents func() int) *instruments {
	metrics := telemetry.NewMetrics(telemetry.Config{Storage: storageCalls, Build: telemetryBuild(),
		Contracts: s.ContractNames(), Upstreams: s.UpstreamNames(), Now: time.Now})
	recorder := history.NewRecorder(time.Now, storageCalls.Snapshot)
	recorder.Throttled = storageCalls.Throttled
	return &instruments{calendar: c, metrics: metrics,
		notified: notify.NewMetrics(metrics.Registry, countEvents), recorder: recorder}
}

// startExport sets the export of traces, and starts the export of metrics. Call startExport before
// the process begins its work.
func (a *App) startExport(ctx context.Context, e *telemetry.Export) {
	a.instruments.export = e
	e.Metrics(ctx, a.instruments.metrics.Registry, a.refreshGauges)
}

// flushTimeout bounds the sending of the last spans, metrics and log records. stopTimeout and
// flushTimeout together are shorter than the 10 s after which the host kills a process that stops.
const flushTimeout = 1500 * time.Millisecond

// flushExport sends the last spans, metrics and log records, even if ctx has ended.
func flushExport(ctx context.Context, e *telemetry.Export) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	e.Close(limited)
}

func (i *instruments) recordAppended(number int, messages []weir.Message) {
	i.recorder.Accepted(number, len(messages))
	i.metrics.Filed(messages)
}

// Poisoned implements poison.Observer.
func (i *instruments) Poisoned() {
	i.metrics.Poisoned()
	i.recorder.Poisoned()
}

func (i *instruments) recordLane(number int, c lane.Control, oldest, now time.Time,
	refused overview.RefusedKeys) {
	_, byOperator := c.LanePause(now)
	closed, _, _ := i.calendar.At(now)
	missing := map[string]int64{}
	for _, m := range c.MissingContracts() {
		missing[m.Contract] = m.Messages
	}

	braked := map[string]int64{}
	for _, b := range c.Tail.Brakes {
		braked[b.Contract] += b.Messages
	}

	i.metrics.Saw(number, telemetry.LaneView{Waiting: c.WaitingCount(), Oldest: oldest,
		Missing: missing, Braked: braked,
		Paused: map[string]bool{"operator": byOperator, "calendar": closed,
			"cms": isPausedByCMS(c.Tail, refused, now)},
		RefusedKeys: refused.Count})
}

// isPausedByCMS reports whether a lane is paused because the CMS is away. If the CMS refuses a few
// keys only, the lane pauses for these alone.
func isPausedByCMS(t lane.Tail, refused overview.RefusedKeys, now time.Time) bool {
	return t.PausedUntil.After(now) && !refused.AreFew()
}

// Attempted implements drain.Observer.
func (i *instruments) Attempted(lane int, m *weir.Message, r weir.Result, outcome weir.Outcome) {
	i.recorder.Attempted(lane, m, r, outcome)
	i.metrics.Attempted(lane, m, r, outcome)
}

// Finished implements drain.Observer.
func (i *instruments) Finished(lane int, f drain.Final) {
	i.recorder.Finished(lane, f)
	i.metrics.Finished(lane, f)
}

// Lease implements drain.Observer.
func (i *instruments) Lease(lane int, event drain.LeaseEvent) { i.metrics.Lease(lane, event) }

// submissions counts what arrives by one way in: the refused submissions in the metrics and the
// history, and the senders of posts in the history. The history shows the counts of all instances.
type submissions struct {
	*instruments
	way string // see history.Refusal
}

// Sent implements receive.Observer.
func (s submissions) Sent(sender string) { s.recorder.Sent(sender) }

// Refused counts a refused submission by its contract and the first rule that it breaks.
func (s submissions) Refused(err error) {
	s.metrics.Refused(s.way, err)
	s.recorder.Refused(history.Refusal{Way: s.way, Reason: telemetry.RefusalReason(err),
		Contract: weir.ContractOf(err), Rule: weir.FirstRule(err)})
}
