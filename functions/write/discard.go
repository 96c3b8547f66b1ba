package write

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/wake"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Discarder asks the holder to discard a dead message; see lane.Requests.Discard.
type Discarder interface {
	Discard(ctx context.Context, id weir.ID, reason string) (weir.Status, error)
}

// Discard serves POST /api/messages/{id}/discard. All fields are needed.
type Discard struct {
	Log    Discarder
	Waker  wake.Ringer
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id". The status is 202 if the holder
// still has to discard the message, and 200 if the message is already discarded.
func (f *Discard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	st, err := f.requestDiscard(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	code := http.StatusAccepted
	if st.Stage == weir.Discarded {
		code = http.StatusOK
	}

	httpio.WriteJSON(w, code, wire.NewMessage(st))
	f.Waker.Ring(st.Message.ID.Lane)
	f.Logger.Info("write: discard asked", "invocation_id", httpio.InvocationID(r), "message_id",
		st.Message.Public().String(), "lane", st.Message.ID.Lane, "seq", st.Message.ID.Seq)
}

func (f *Discard) requestDiscard(r *http.Request) (weir.Status, error) {
	id, err := httpio.MessageID(r)
	if err != nil {
		return weir.Status{}, err
	}

	reason, err := httpio.ReadReason(r)
	if err != nil {
		return weir.Status{}, err
	}

	return f.Log.Discard(r.Context(), id, reason)
}
