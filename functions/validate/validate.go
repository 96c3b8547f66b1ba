// Package validate is the function for POST /api/validate. It checks a body against the contracts,
// and stores nothing.
package validate

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"weir/internal/contract"
	"weir/internal/filing"
	"weir/internal/httpio"
	"weir/internal/upstream"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Checker checks a body against the contracts; see contract.Set.
type Checker interface {
	Check(ctx context.Context, contentType string, body []byte) (contract.Checked, error)
}

// Function checks bodies. All fields are needed.
type Function struct {
	Contracts Checker
	Headers   *filing.Filer
	Intake    *httpio.Intake
	MaxBody   int64 // in bytes
	Now       func() time.Time
	Logger    *slog.Logger
}

// ServeHTTP implements http.Handler. The status is 200 even if the body breaks its contract,
// because the problems of the body are the result of the check.
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found, err := f.checkBody(w, r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	httpio.WriteJSON(w, http.StatusOK, wire.NewValidation(found.Message, found.Problems))
}

// checkBody checks headers and body as a post to /api/messages would. The headers of upstreams are
// allowed, although the function asks for no upstream, so that an upstream can check exactly the
// request that it will post.
func (f *Function) checkBody(w http.ResponseWriter, r *http.Request) (contract.Checked, error) {
	options, err := f.Headers.ReadOptions(r.Header, f.Now(), upstream.Headers()...)
	if err != nil {
		return contract.Checked{}, err
	}

	body, release, err := f.Intake.ReadUnpacked(w, r, f.MaxBody, nil)
	defer release()
	if err != nil {
		return contract.Checked{}, httpio.NameSetting(err, "maxBody")
	}

	found, err := f.Contracts.Check(weir.WithHeaders(r.Context(), r.Header),
		r.Header.Get("Content-Type"), body)
	if !options.DueAt.IsZero() {
		found.Message.DueAt = options.DueAt
	}

	return found, err
}
