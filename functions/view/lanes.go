package view

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"weir/internal/httpio"
	"weir/internal/overview"
)

// LaneReader reads the states of lanes; see overview.Overview.
type LaneReader interface {
	Lanes(ctx context.Context) ([]overview.Lane, error)
	Lane(ctx context.Context, number int) (overview.Lane, error)
}

// Lanes serves GET /api/lanes. All fields are needed.
type Lanes struct {
	Source   LaneReader
	Calendar httpio.Calendar
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
	out := struct {
		Lanes    []LaneState          `json:"lanes"`
		Totals   totals               `json:"totals"`
		Calendar httpio.CalendarState `json:"calendar"`
	}{[]LaneState{}, describeTotals(overview.SumLanes(lanes)), httpio.DescribeCalendar(f.Calendar, f.Now())}
	for i := range lanes {
		out.Lanes = append(out.Lanes, DescribeLane(&lanes[i]))
	}
	httpio.WriteJSON(w, http.StatusOK, out)
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
	httpio.WriteJSON(w, http.StatusOK, DescribeLane(&l))
}

// LaneState is the JSON form of a lane's state.
type LaneState struct {
	Lane          int            `json:"lane"`
	Accepted      int64          `json:"accepted"`
	Delivered     int64          `json:"delivered"`
	Dead          int64          `json:"dead"`
	Cancelled     int64          `json:"cancelled"`
	Superseded    int64          `json:"superseded"`
	Moved         int64          `json:"moved,omitempty"`
	Waiting       int64          `json:"waiting"`
	Scheduled     int64          `json:"scheduled"`
	Queued        int64          `json:"queued"`
	Retrying      int64          `json:"retrying"`
	Exact         bool           `json:"exact"` // all waiting messages were counted by stage
	OldestAt      *time.Time     `json:"oldestWaitingAt,omitempty"`
	OldestSeconds *float64       `json:"oldestWaitingSeconds,omitempty"`
	Rate1         *float64       `json:"ratePerMinute1,omitempty"`
	Rate15        *float64       `json:"ratePerMinute15,omitempty"`
	EmptyIn       *float64       `json:"emptyInSeconds,omitempty"`
	Held          bool           `json:"held"` // a holder has the lane, or died with it
	Holder        string         `json:"holder,omitempty"`
	Fence         int64          `json:"fence"`
	PausedBy      string         `json:"pausedBy,omitempty"` // operator, calendar, cms
	PausedUntil   *time.Time     `json:"pausedUntil,omitempty"`
	PauseReason   string         `json:"pauseReason,omitempty"`
	Pauses        []httpio.Pause `json:"pauses"`
	NextDueAt     *time.Time     `json:"nextDueAt,omitempty"`
	LastError     string         `json:"lastError,omitempty"`
	LastErrorAt   *time.Time     `json:"lastErrorAt,omitempty"`
}

// DescribeLane returns the JSON form of a lane's state.
func DescribeLane(l *overview.Lane) LaneState {
	s := LaneState{
		Lane: l.Number, Accepted: l.Accepted, Delivered: l.Counts.Delivered, Dead: l.Counts.Dead,
		Cancelled:  l.Counts.Cancelled,
		Superseded: l.Counts.Superseded, Moved: l.Counts.Moved, Waiting: l.Waiting, Scheduled: l.Scheduled,
		Queued: l.Queued, Retrying: l.Retrying,
		Exact: l.Exact, OldestAt: timeOrNil(l.OldestAt), Rate1: rateOrNil(l.Rate1), Rate15: rateOrNil(l.Rate15),
		Held: l.Held, Holder: l.Holder, Fence: l.Fence,
		PausedBy: l.PauseCause.By, PausedUntil: timeOrNil(l.PauseCause.Until), PauseReason: l.PauseCause.Reason,
		Pauses:    httpio.DescribePauses(l.Pauses),
		NextDueAt: timeOrNil(l.NextDue), LastError: l.LastError, LastErrorAt: timeOrNil(l.LastErrorAt),
	}
	if !l.OldestAt.IsZero() {
		s.OldestSeconds = toSeconds(max(l.At.Sub(l.OldestAt), 0))
	}
	if l.DrainEstimate.Known {
		s.EmptyIn = toSeconds(l.DrainEstimate.In)
	}
	return s
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

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// totals is the JSON form of the sums over all lanes.
type totals struct {
	Accepted   int64 `json:"accepted"`
	Delivered  int64 `json:"delivered"`
	Dead       int64 `json:"dead"`
	Cancelled  int64 `json:"cancelled"`
	Superseded int64 `json:"superseded"`
	Moved      int64 `json:"moved,omitempty"`
	Waiting    int64 `json:"waiting"`
}

func describeTotals(t overview.Totals) totals {
	return totals{t.Accepted, t.Counts.Delivered, t.Counts.Dead, t.Counts.Cancelled, t.Counts.Superseded,
		t.Counts.Moved, t.Waiting}
}
