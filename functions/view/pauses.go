package view

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
)

// PauseReader reads the operator's pauses that hold now, of all lanes.
type PauseReader interface {
	ReadPauses(ctx context.Context) ([]weir.Pause, error)
}

// Pauses serves GET /api/pauses. All fields are needed.
type Pauses struct {
	Reader   PauseReader
	Calendar httpio.Calendar
	Now      func() time.Time
	Logger   *slog.Logger
}

// ServeHTTP implements http.Handler.
func (f *Pauses) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pauses, err := f.Reader.ReadPauses(r.Context())
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	httpio.WriteJSON(w, http.StatusOK, struct {
		Pauses   []httpio.Pause       `json:"pauses"`
		Calendar httpio.CalendarState `json:"calendar"`
	}{httpio.DescribePauses(pauses), httpio.DescribeCalendar(f.Calendar, f.Now())})
}
