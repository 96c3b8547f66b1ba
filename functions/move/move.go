// Package move is the function that changes the due time of a scheduled message:
// PATCH /api/messages/{id} with {"deliverAt": "…"}.
package move

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"weir/internal/httpio"
	"weir/internal/wake"
	"weir/internal/weir"
	"weir/internal/wire"
)

// maxBody is the largest size of a body, in bytes.
const maxBody = 4 << 10

// Mover changes the due time of a scheduled message. The argument "version" is the Version of the
// Status that the client has read. If this argument is empty, Reschedule accepts every version.
// Errors of Reschedule:
//   - Conflict: the message is not scheduled any more.
//   - Stale: the message has another version now.
type Mover interface {
	Reschedule(ctx context.Context, id weir.ID, due time.Time, version string) (weir.Status, error)
}

// Function changes the due times of messages. All fields are needed.
type Function struct {
	Log    Mover
	Waker  wake.Ringer
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id".
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	st, err := f.moveMessage(w, r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	httpio.SetVersion(w, st.Version)
	httpio.WriteJSON(w, http.StatusOK, wire.NewMessage(st))
	id := st.Message.ID
	f.Waker.Ring(id.Lane)
	f.Logger.Info("move: moved", "invocation_id", httpio.InvocationID(r), "message_id",
		st.Message.Public().String(), "lane", id.Lane, "seq", id.Seq, "stage", string(st.Stage))
}

func (f *Function) moveMessage(w http.ResponseWriter, r *http.Request) (weir.Status, error) {
	id, err := httpio.MessageID(r)
	if err != nil {
		return weir.Status{}, err
	}

	version, err := httpio.IfMatch(r)
	if err != nil {
		return weir.Status{}, err
	}

	body, err := httpio.ReadBody(w, r, maxBody)
	if err != nil {
		return weir.Status{}, err
	}

	due, err := parseDueTime(body)
	if err != nil {
		return weir.Status{}, err
	}

	return f.Log.Reschedule(r.Context(), id, due, version)
}

func parseDueTime(body []byte) (time.Time, error) {
	var wanted struct {
		DeliverAt *string `json:"deliverAt"`
	}
	if err := httpio.DecodeJSON(body, &wanted); err != nil || wanted.DeliverAt == nil {
		return time.Time{}, &weir.Error{Kind: weir.Malformed, Op: "move",
			Message: `the body must be JSON with one field: {"deliverAt": "2030-01-31T08:00:00+01:00"}`, Err: err}
	}

	due, err := weir.ParseMoment(*wanted.DeliverAt)
	if err != nil {
		return time.Time{}, &weir.Error{Kind: weir.Malformed, Op: "move",
			Message: "deliverAt: " + err.Error()}
	}

	return due, nil
}
