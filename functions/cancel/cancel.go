// Package cancel is the function that cancels a message: DELETE /api/messages/{id}.
package cancel

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/wake"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Canceller cancels messages. The result of Cancel depends on the stage of the message:
//   - scheduled: Cancel has cancelled the message, and the returned Status shows that.
//   - queued or retrying: Cancel has only sent the holder a request. The holder decides later.
//   - final: Cancel returns Conflict.
type Canceller interface {
	Cancel(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Function cancels messages. All fields are needed.
type Function struct {
	Log    Canceller
	Waker  wake.Ringer
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id". The answer is 200 if the
// message is cancelled, and 202 if the holder still has to decide.
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, err := httpio.MessageID(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	// for Logger; the audit log reads the reason from the query, too
	reason, err := httpio.ReadReason(r)
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

	httpio.WriteJSON(w, code, wire.NewMessage(st))
	at := st.Message.ID // the id in the present epoch, which can differ from the id in the path
	f.Waker.Ring(at.Lane)
	f.Logger.Info("cancel: asked", "invocation_id", httpio.InvocationID(r), "message_id",
		id.String(), "lane", at.Lane, "seq", at.Seq, "stage", string(st.Stage), "reason", reason)
}
