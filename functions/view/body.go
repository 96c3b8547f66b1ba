package view

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"

	"weir/internal/difference"
	"weir/internal/httpio"
	"weir/internal/query"
	"weir/internal/weir"
)

// Body serves GET /api/messages/{id}/body. All fields are needed.
type Body struct {
	Bodies difference.Bodies
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id".
func (f *Body) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m, err := f.loadMessage(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	// so that no browser keeps the body, which may be erased, on its disk
	w.Header().Set("Cache-Control", "no-store")
	sum := sha256.Sum256(m.Body)
	if httpio.NotModified(w, r, hex.EncodeToString(sum[:16])) {
		return
	}

	httpio.WriteBody(w, m)
}

func (f *Body) loadMessage(r *http.Request) (weir.Message, error) {
	id, err := httpio.MessageID(r)
	if err != nil {
		return weir.Message{}, err
	}

	p := query.New(r.URL.Query())
	which := p.Values.Get("which")
	if which != "" && which != "accepted" && which != "edited" {
		p.AddProblem("which", "must be accepted or edited")
	}

	p.RefuseOthers("which")
	if err := p.ToError(); err != nil {
		return weir.Message{}, err
	}

	if which == "edited" {
		return f.Bodies.LoadEditedMessage(r.Context(), id)
	}

	return f.Bodies.LoadMessage(r.Context(), id)
}
