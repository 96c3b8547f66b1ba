package view

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
	"weir/internal/wire"
)

// PauseReader reads the operators' pauses of lanes and keys that are in force now.
type PauseReader interface {
	ReadPauses(ctx context.Context) ([]weir.Pause, error)
}

// Pauses serves GET /api/pauses. All fields are needed.
type Pauses struct {
	Reader   PauseReader
	Calendar wire.CalendarReader
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

	calendar := wire.NewCalendar(f.Calendar, f.Now())
	httpio.WriteJSON(w, http.StatusOK,
		wire.PauseList{Pauses: wire.NewPauses(pauses), Calendar: &calendar})
}
