package view

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"weir/internal/export"
	"weir/internal/httpio"
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
	if writeExport(w, r, f.newExport()) {
		return
	}

	lanes, err := f.Source.Lanes(r.Context())
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	httpio.WriteJSON(w, http.StatusOK,
		overview.DescribeLanes(lanes, wire.NewCalendar(f.Calendar, f.Now())))
}

func (f *Lanes) newExport() *export.List[wire.Lane] {
	return &export.List[wire.Lane]{File: "lanes", Name: "lanes", Now: f.Now, Log: f.Logger,
		Columns: []string{"lane", "accepted", "delivered", "dead", "cancelled", "superseded",
			"discarded", "moved",
			"waiting", "scheduled", "queued", "retrying", "exact", "oldestWaitingAt",
			"ratePerMinute1",
			"ratePerMinute15",
			"emptyInSeconds", "held", "holder", "fence", "pausedBy", "pausedUntil", "pauseReason",
			"nextDueAt",
			"lastError",
			"lastErrorAt"},
		NewRecord: newLaneRecord,
		ReadPage: func(ctx context.Context, _ int, _ string) (export.Page[wire.Lane], error) {
			lanes, err := f.Source.Lanes(ctx)
			if err != nil {
				return export.Page[wire.Lane]{}, err
			}

			list := overview.DescribeLanes(lanes, wire.NewCalendar(f.Calendar, f.Now()))
			return export.Page[wire.Lane]{Lines: list.Lanes, End: struct {
				Totals   wire.Counts   `json:"totals"`
				Calendar wire.Calendar `json:"calendar"`
			}{list.Totals, list.Calendar}}, nil
		}}
}

// newLaneRecord returns the cells of a lane, in the order of the export's columns.
func newLaneRecord(l wire.Lane) []string {
	cells := []string{strconv.Itoa(l.Number)}
	for _, n := range []int64{l.Accepted, l.Delivered, l.Dead, l.Cancelled, l.Superseded,
		l.Discarded, l.Moved, l.Waiting, l.Scheduled, l.Queued, l.Retrying} {
		cells = append(cells, strconv.FormatInt(n, 10))
	}

	return append(cells, strconv.FormatBool(l.Exact), export.FormatTime(l.OldestAt),
		formatFraction(l.Rate1),
		formatFraction(l.Rate15), formatFraction(l.EmptyIn), strconv.FormatBool(l.Held), l.Holder,
		strconv.FormatInt(l.Fence, 10), l.PausedBy, export.FormatTime(l.PausedUntil), l.PauseReason,
		export.FormatTime(l.NextDueAt), l.LastError, export.FormatTime(l.LastErrorAt))
}

// formatFraction returns the text of a cell; nil = an empty cell.
func formatFraction(f *float64) string {
	if f == nil {
		return ""
	}
	return strconv.FormatFloat(*f, 'f', -1, 64)
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

	httpio.WriteJSON(w, http.StatusOK, overview.DescribeLane(&l))
}
