// Package cancel is the function that cancels a message: DELETE /api/messages/{id}.
package cancel

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Canceller cancels a scheduled message at once. For a queued or retrying message it requests the cancellation from
// the holder. The stage of the returned Status shows whether the message is cancelled already. If the message was
// final before the call, Cancel returns Conflict.
type Canceller interface {
	Cancel(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Caller wakes the lane's drainer, in this process or in the process that holds the lane.
type Caller interface{ Call(lane int) }

// Function cancels messages. All fields are needed.
type Function struct {
	Log    Canceller
	Caller Caller
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id". It answers 200 if the message is cancelled,
// and 202 if the holder still has to decide. The message's stage shows the holder's decision.
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, err := httpio.MessageID(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	reason, err := httpio.ReadReason(r) // only to check it: the audit log stores the whole query, and so the reason
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
	at := st.Message.ID // the position in the present epoch, which may differ from id
	f.Caller.Call(at.Lane)
	f.Logger.Info("cancel: asked", "invocation_id", httpio.InvocationID(r), "message_id", id.String(), "lane", at.Lane,
		"seq", at.Seq, "stage", string(st.Stage), "reason", reason)
}
