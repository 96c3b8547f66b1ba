package view

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/replay"
)

// Jobs reads bulk replays. Get returns NotFound if there is no such job.
type Jobs interface {
	List(ctx context.Context) ([]replay.Job, error)
	Get(ctx context.Context, id string) (replay.Job, error)
}

// Replays serves GET /api/replays, and with a path value "id" GET /api/replays/{id}. All
// fields are needed.
type Replays struct {
	Jobs   Jobs
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler.
func (f *Replays) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := f.readAnswer(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	httpio.WriteJSON(w, http.StatusOK, answer)
}

func (f *Replays) readAnswer(r *http.Request) (any, error) {
	if id := r.PathValue("id"); id != "" {
		return f.Jobs.Get(r.Context(), id)
	}
	jobs, err := f.Jobs.List(r.Context())
	if jobs == nil {
		jobs = []replay.Job{}
	}
	return struct {
		Replays []replay.Job `json:"replays"`
	}{jobs}, err
}
