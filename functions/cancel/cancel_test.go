package cancel_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/functions/cancel"
	"weir/internal/weir"
)

type fake struct {
	stage  weir.Stage
	err    error
	called []int
}

func (f *fake) Cancel(_ context.Context, id weir.ID) (weir.Status, error) {
	return weir.Status{Message: weir.Message{ID: id}, Stage: f.stage}, f.err
}
func (f *fake) Ring(lane int) { f.called = append(f.called, lane) }

func TestFunction(t *testing.T) {
	t.Parallel()
	id := weir.ID{Epoch: 1, Lane: 2, Seq: 3, Nonce: "00112233445566778899"}.String()
	for name, c := range map[string]struct {
		id     string
		stage  weir.Stage
		err    error
		status int
		calls  int
	}{
		"scheduled": {id, weir.Cancelled, nil, 200, 1},
		"queued":    {id, weir.Queued, nil, 202, 1},
		"final": {id, weir.Delivered,
			&weir.Error{Kind: weir.Conflict, Message: "the message is delivered already"}, 409, 0},
		"unknown": {id, "",
			&weir.Error{Kind: weir.NotFound, Message: "none"}, 404, 0},
		"no id":                      {"nonsense", "", nil, 404, 0},
		"reason":                     {id + "?reason=sent+twice", weir.Queued, nil, 202, 1},
		"a reason of 501 characters": {id + "?reason=" + strings.Repeat("x", 501), "", nil, 422, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{stage: c.stage, err: c.err}
			mux := http.NewServeMux()
			mux.Handle("/api/messages/{id}",
				&cancel.Function{Log: f, Waker: f, Logger: slog.New(slog.DiscardHandler)})
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/api/messages/"+c.id, nil))

			if w.Code != c.status || len(f.called) != c.calls ||
				(w.Code < 300 && !strings.Contains(w.Body.String(), string(c.stage))) {
				t.Errorf("got %d %s and the called lanes %v; want %d, stage %q and %d called lanes",
					w.Code, w.Body, f.called,
					c.status, c.stage, c.calls)
			}
		})
	}
}
