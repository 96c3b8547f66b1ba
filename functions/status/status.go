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

// Outlook tells what a waiting message waits for.
type Outlook interface {
	Outlook(ctx context.Context, st weir.Status) (overview.Outlook, error)
}

// Function tells the state of messages. All fields are needed.
type Function struct {
	Log     Reader
	Outlook Outlook
	Logger  *slog.Logger
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
	httpio.WriteJSON(w, http.StatusOK, f.describe(r, st))
}

// describe adds what a waiting message waits for. Where that cannot be read, its state is
// told all the same.
func (f *Function) describe(r *http.Request, st weir.Status) httpio.Message {
	m := httpio.DescribeStatus(st)
	if st.Stage.Final() {
		return m
	}
	o, err := f.Outlook.Outlook(r.Context(), st)
	if err != nil {
		f.Logger.Warn("status: outlook not known", "invocation_id", httpio.InvocationID(r), "message_id", m.ID, "err", err)
		return m
	}
	m.Expect(o.Position, o.ExpectedAt, o.WaitsFor)
	return m
}
