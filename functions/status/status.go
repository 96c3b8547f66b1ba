// Package status is the function that tells where a message is: GET /api/messages/{id}.
package status

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/overview"
	"weir/internal/weir"
)

// Reader reads a message's state; NotFound for what does not exist.
type Reader interface {
	Status(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Forecaster forecasts when a waiting message is sent; see overview.Overview.
type Forecaster interface {
	Forecast(ctx context.Context, st weir.Status) (overview.Forecast, error)
}

// Function tells the state of messages. All fields are needed.
type Function struct {
	Log        Reader
	Forecaster Forecaster
	Logger     *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id".
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, err := httpio.MessageID(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	outlook, err := asksOutlook(r)
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
	httpio.WriteJSON(w, http.StatusOK, f.describe(r, st, outlook))
}

// asksOutlook reports whether the caller asks for the outlook. It costs a read of up to a
// thousand rows of the lane, and upstreams poll when there is a backlog.
func asksOutlook(r *http.Request) (bool, error) {
	switch r.URL.Query().Get("outlook") {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	}
	return false, &weir.Error{Kind: weir.Malformed, Op: "status", Message: "outlook must be 1 or 0"}
}

// describe adds the outlook of a waiting message, if the caller asks for it. If it cannot be
// read, the state is answered without it.
func (f *Function) describe(r *http.Request, st weir.Status, outlook bool) httpio.Message {
	m := httpio.DescribeStatus(st)
	if !outlook || st.Stage.Final() {
		return m
	}
	o, err := f.Forecaster.Forecast(r.Context(), st)
	if err != nil {
		f.Logger.Warn("status: outlook not known", "invocation_id", httpio.InvocationID(r), "message_id", m.ID, "err",
			err)
		return m
	}
	m.AddForecast(o.Position, o.ExpectedAt, o.WaitsFor)
	return m
}
