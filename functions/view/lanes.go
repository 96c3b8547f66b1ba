package view

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/overview"
	"weir/internal/wire"
)

// LaneReader reads the states of lanes; see overview.Overview.
type LaneReader interface {
	Lanes(ctx context.Context) ([]overview.Lane, error)
	Lane(ctx context.Context, number int) (overview.Lane, error)
}

// Lanes serves GET /api/lanes. All fields are needed.
type Lanes struct {
	Source   LaneReader
	Calendar wire.CalendarReader
	Now      func() time.Time
	Logger   *slog.Logger
}

// ServeHTTP implements http.Handler.
func (f *Lanes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	lanes, err := f.Source.Lanes(r.Context())
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	httpio.WriteJSON(w, http.StatusOK, DescribeLanes(lanes, wire.NewCalendar(f.Calendar, f.Now())))
}

// Lane serves GET /api/lanes/{lane}. All fields are needed.
type Lane struct {
	Source LaneReader
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The lane's number is the path value "lane".
func (f *Lane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.PathValue("lane"))
	if err != nil {
		n = -1
	}
	l, err := f.Source.Lane(r.Context(), n)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	httpio.WriteJSON(w, http.StatusOK, describeLane(&l))
}

// DescribeLanes returns the JSON form of all lanes.
func DescribeLanes(lanes []overview.Lane, calendar wire.Calendar) wire.LaneList {
	totals := overview.SumLanes(lanes)
	list := wire.LaneList{Lanes: []wire.Lane{}, Calendar: calendar,
		Totals: describeCounts(totals.Accepted, totals.Counts, totals.Waiting)}
	for i := range lanes {
		list.Lanes = append(list.Lanes, describeLane(&lanes[i]))
	}
	return list
}

func describeLane(l *overview.Lane) wire.Lane {
	out := wire.Lane{
		Number: l.Number, Counts: describeCounts(l.Accepted, l.Counts, l.Waiting),
		Scheduled: l.Scheduled, Queued: l.Queued, Retrying: l.Retrying, Exact: l.Exact,
		OldestAt: l.OldestAt, Rate1: rateOrNil(l.Rate1), Rate15: rateOrNil(l.Rate15),
		Held: l.Held, Holder: l.Holder, Fence: l.Fence,
		PausedBy: l.PauseCause.By, PausedUntil: l.PauseCause.Until, PauseReason: l.PauseCause.Reason,
		Pauses:    wire.NewPauses(l.Pauses),
		NextDueAt: l.NextDue, LastError: l.LastError, LastErrorAt: l.LastErrorAt,
	}
	if !l.OldestAt.IsZero() {
		out.OldestSeconds = toSeconds(max(l.At.Sub(l.OldestAt), 0))
	}
	if l.DrainEstimate.Known {
		out.EmptyIn = toSeconds(l.DrainEstimate.In)
	}
	return out
}

func describeCounts(accepted int64, c lane.Counts, waiting int64) wire.Counts {
	return wire.Counts{Accepted: accepted, Delivered: c.Delivered, Dead: c.Dead, Cancelled: c.Cancelled,
		Superseded: c.Superseded, Moved: c.Moved, Waiting: waiting}
}

func toSeconds(d time.Duration) *float64 {
	s := d.Round(time.Millisecond).Seconds()
	return &s
}

func rateOrNil(r overview.Rate) *float64 {
	if !r.Known {
		return nil
	}
	return &r.PerMinute
}
