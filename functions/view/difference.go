package view

import (
	"log/slog"
	"net/http"

	"weir/internal/difference"
	"weir/internal/httpio"
)

// Difference serves GET /api/messages/{id}/difference: the changes that an edit made to a body. All
// fields are needed.
type Difference struct {
	Bodies difference.Bodies
	Turns  difference.Turns
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id".
func (f *Difference) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := f.readDifference(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	httpio.WriteJSON(w, http.StatusOK, struct {
		Difference string `json:"difference"`
	}{text})
}

func (f *Difference) readDifference(r *http.Request) (string, error) {
	id, err := httpio.MessageID(r)
	if err != nil {
		return "", err
	}
	return difference.Compare(r.Context(), f.Turns, f.Bodies, id)
}
