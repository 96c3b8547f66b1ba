// Package cancel is the function that stops a message from being delivered:
// DELETE /api/messages/{id}.
package cancel

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/weir"
)

// Canceller cancels what is scheduled at once, and asks the holder for the rest: the Status
// says which. Conflict: the message is final.
type Canceller interface {
	Cancel(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Caller has a lane looked at, here and, where another process holds it, there.
type Caller interface{ Call(lane int) }

// Function cancels messages. All fields are needed.
type Function struct {
	Log    Canceller
	Caller Caller
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id". 200: it is cancelled.
// 202: it waits in the log, and its stage will tell.
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, err := httpio.MessageID(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	st, err := f.Log.Cancel(r.Context(), id)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	code := http.StatusAccepted
	if st.Stage == weir.Cancelled {
		code = http.StatusOK
	}
	httpio.WriteJSON(w, code, httpio.DescribeStatus(st))
	at := st.Message.ID // where it stands
	f.Caller.Call(at.Lane)
	f.Logger.Info("cancel: asked", "invocation_id", httpio.InvocationID(r), "message_id", id.String(), "lane", at.Lane, "seq", at.Seq, "stage", string(st.Stage))
}
