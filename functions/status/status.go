// Package status is the function that answers with the state of a message: GET /api/messages/{id}.
package status

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"weir/internal/httpio"
	"weir/internal/overview"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Reader reads a message's state. Status returns NotFound if there is no such message.
type Reader interface {
	Status(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Forecaster forecasts when a waiting message is sent; see overview.Overview.
type Forecaster interface {
	Forecast(ctx context.Context, st weir.Status) (overview.Forecast, error)
}

// Past reads the attempts of a lane between two times that counted for no message.
type Past interface {
	Uncounted(ctx context.Context, lane int, from, to time.Time) (wire.Uncounted, error)
}

// Function answers with the states of messages. All fields are needed.
type Function struct {
	Log        Reader
	Forecaster Forecaster
	Past       Past
	Logger     *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id".
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, err := httpio.MessageID(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	outlook, err := wantsForecast(r)
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

	httpio.WriteJSON(w, http.StatusOK, f.describeStatus(r, st, outlook))
}

// wantsForecast reports whether the query parameter outlook asks for the forecast. Without the
// parameter there is no forecast, because a forecast reads up to a thousand rows of the lane, and
// upstreams poll messages during a backlog.
func wantsForecast(r *http.Request) (bool, error) {
	switch r.URL.Query().Get("outlook") {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	}
	return false, &weir.Error{Kind: weir.Malformed, Op: "status", Message: "outlook must be 1 or 0"}
}

// describeStatus returns the JSON form of a message's state. If outlook is true, it adds the
// forecast of a waiting message, and the reason of a long wait before the first attempt. The result
// has no field whose read fails.
func (f *Function) describeStatus(r *http.Request, st weir.Status, outlook bool) wire.Message {
	m := wire.NewMessage(st)
	if !outlook {
		return m
	}

	if from, to, isLong := m.FirstLongWait(); isLong {
		uncounted, err := f.Past.Uncounted(r.Context(), m.Lane, from, to)
		if err != nil {
			f.Logger.Warn("status: pauses of the lane not known", "invocation_id",
				httpio.InvocationID(r), "message_id", m.ID, "err", err)
		}
		m.Uncounted = uncounted
	}

	if st.Stage.Final() {
		return m
	}

	o, err := f.Forecaster.Forecast(r.Context(), st)
	if err != nil {
		f.Logger.Warn("status: outlook not known", "invocation_id", httpio.InvocationID(r),
			"message_id", m.ID, "err", err)
		return m
	}

	m.Position, m.ExpectedAt, m.WaitsFor = o.Position, o.ExpectedAt, o.WaitsFor

	return m
}
