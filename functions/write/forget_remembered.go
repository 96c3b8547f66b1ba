package write

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/wake"
	"weir/internal/wire"
)

// RememberedForgetter asks the holder to forget the remembered id of a key and contract, and
// returns that id; see lane.Requests.ForgetRemembered.
type RememberedForgetter interface {
	ForgetRemembered(ctx context.Context, key, contract string) (string, error)
}

// ForgetRemembered serves POST /api/remembered/forget. All fields are needed.
type ForgetRemembered struct {
	Log    RememberedForgetter
	Waker  wake.Ringer
	LaneOf func(key string) int
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The answer has the status 202, and the id that the holder will
// forget.
func (f *ForgetRemembered) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list, err := f.askToForget(w, r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	httpio.WriteJSON(w, http.StatusAccepted, list)
	f.Waker.Ring(list.Lane)
	f.Logger.Info("write: forgetting of a remembered id asked", "invocation_id",
		httpio.InvocationID(r), "lane", list.Lane)
}

func (f *ForgetRemembered) askToForget(w http.ResponseWriter,
	r *http.Request) (wire.RememberedList, error) {
	key, contract, err := readForgetRequest(w, r)
	if err != nil {
		return wire.RememberedList{}, err
	}

	id, err := f.Log.ForgetRemembered(r.Context(), key, contract)
	return wire.RememberedList{Key: key, Lane: f.LaneOf(key),
		Remembered: []wire.RememberedID{{Contract: contract, ID: id}}}, err
}
