// Package status is the function that tells where a message is: GET /api/messages/{id}.
package status

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/weir"
)

// Reader reads a message's state; NotFound for what does not exist.
type Reader interface {
	Status(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Function tells the state of messages. All fields are needed.
type Function struct {
	Log    Reader
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id".
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, err := httpio.MessageID(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	st, err := f.Log.Status(r.Context(), id)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	if httpio.NotModified(w, r, st.Version) {
		return
	}
	httpio.WriteJSON(w, http.StatusOK, httpio.DescribeStatus(st))
}
