package write

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"

	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/wake"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Replayer asks the holder to replay a dead message; see lane.Requests.Replay.
type Replayer interface {
	Replay(ctx context.Context, id weir.ID, o lane.ReplayOptions) (weir.Status, error)
}

// Replay serves POST /api/messages/{id}/replay. All fields are needed.
type Replay struct {
	Log    Replayer
	Waker  wake.Ringer
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id". The status is 202, because the
// holder replays the message later. The message's stage shows the result.
func (f *Replay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	st, err := f.requestReplay(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	answerReplay(w, st, f.Waker)
	f.Logger.Info("write: replay asked", "invocation_id", httpio.InvocationID(r), "message_id",
		st.Message.Public().String(), "lane", st.Message.ID.Lane, "seq", st.Message.ID.Seq)
}

func (f *Replay) requestReplay(r *http.Request) (weir.Status, error) {
	id, err := httpio.MessageID(r)
	if err != nil {
		return weir.Status{}, err
	}

	force, err := readForce(r)
	if err != nil {
		return weir.Status{}, err
	}

	return f.Log.Replay(r.Context(), id, lane.ReplayOptions{Force: force})
}

func answerReplay(w http.ResponseWriter, st weir.Status, waker wake.Ringer) {
	httpio.WriteJSON(w, http.StatusAccepted, wire.NewMessage(st))
	waker.Ring(st.Message.ID.Lane)
}

func readForce(r *http.Request) (bool, error) {
	text := r.URL.Query().Get("force")
	if text == "" {
		return false, nil
	}

	force, err := strconv.ParseBool(text)
	if err != nil {
		return false, &weir.Error{Kind: weir.Malformed, Op: "write",
			Message: "force is true or false"}
	}

	return force, nil
}
