package view

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/weir"
	"weir/internal/wire"
)

// StatusReader reads a message's state. If the message does not exist, the error is NotFound.
type StatusReader interface {
	Status(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Attempts serves GET /api/messages/{id}/attempts. All fields are needed.
type Attempts struct {
	Source StatusReader
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id".
func (f *Attempts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, err := httpio.MessageID(r)
	var st weir.Status
	if err == nil {
		st, err = f.Source.Status(r.Context(), id)
	}

	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	if httpio.NotModified(w, r, st.Version) {
		return
	}

	log := wire.NewMessage(st).AttemptLog
	if log == nil {
		log = []wire.Attempt{}
	}

	httpio.WriteJSON(w, http.StatusOK, struct {
		// if there are more than 20, the first ten and the last ten
		Attempts []wire.Attempt `json:"attempts"`
		Count    int            `json:"count"` // the number of all attempts
	}{log, st.AttemptCount})
}
