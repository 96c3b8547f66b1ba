package view

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"weir/internal/httpio"
	"weir/internal/overview"
)

// ErrorReader groups dead messages by cause; see overview.Overview.
type ErrorReader interface {
	Clusters(ctx context.Context, limit int) (overview.Clusters, error)
}

// Errors serves GET /api/errors. All fields are needed.
type Errors struct {
	Source ErrorReader
	Logger *slog.Logger
}

// failure is the JSON form of a cluster of dead messages.
type failure struct {
	Fingerprint string    `json:"fingerprint"`
	Contract    string    `json:"contract"`
	CMSStatus   int       `json:"cmsStatus,omitempty"`
	Message     string    `json:"message"`
	Count       int       `json:"count"`
	Keys        int       `json:"keys"`
	FirstAt     time.Time `json:"firstAt"`
	LastAt      time.Time `json:"lastAt"`
	Sample      sample    `json:"sample"`
}

type sample struct {
	ID     string `json:"id,omitempty"`
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

// ServeHTTP implements http.Handler.
func (f *Errors) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := &parameters{values: r.URL.Query()}
	limit := p.readNumber("limit", defaultLimit, 1, maxLimit)
	p.refuseOthers("limit")
	err := p.toError()
	var all overview.Clusters
	if err == nil {
		all, err = f.Source.Clusters(r.Context(), limit)
	}
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	out := struct {
		Errors   []failure `json:"errors"`
		Looked   int       `json:"looked"`
		Complete bool      `json:"complete"`
	}{[]failure{}, all.Examined, all.Complete}
	for _, c := range all.List {
		out.Errors = append(out.Errors, failure{c.Fingerprint, c.Contract, c.CMSStatus, c.Message, c.Count, c.Keys,
			c.First.UTC(), c.Last.UTC(),
			sample{c.Sample.ID, c.Sample.Key, c.Sample.Reason}})
	}
	httpio.WriteJSON(w, http.StatusOK, out)
}
