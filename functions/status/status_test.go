package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"weir/functions/status"
	"weir/internal/overview"
	"weir/internal/weir"
	"weir/internal/wire"
)

type reader struct {
	st    weir.Status
	fails error

	unasked *testing.T // fails if the forecast is read; nil = the forecast may be read
}

func (r reader) Status(_ context.Context, id weir.ID) (weir.Status, error) {
	if id != r.st.Message.ID {
		return weir.Status{}, &weir.Error{Kind: weir.NotFound, Message: "no such message"}
	}
	return r.st, nil
}

func (r reader) Forecast(context.Context, weir.Status) (overview.Forecast, error) {
	if r.unasked != nil {
		r.unasked.Error("the forecast was read, want no read")
	}
	return overview.Forecast{Position: 3, ExpectedAt: r.st.Message.AcceptedAt.Add(time.Minute),
			WaitsFor: "its turn"},
		r.fails
}

func (r reader) Uncounted(_ context.Context, lane int, from, to time.Time) (wire.Uncounted, error) {
	if lane != r.st.Message.ID.Lane || to.Sub(from) != 20*time.Second {
		return wire.Uncounted{}, fmt.Errorf("lane %d from %s to %s", lane, from, to)
	}
	return wire.Uncounted{Attempts: 5, Status: 503}, r.fails
}

func TestFunction(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)
	id := weir.ID{Epoch: 1, Lane: 2, Seq: 3, Nonce: "00112233445566778899"}
	other := id
	other.Nonce = "99887766554433221100"
	st := weir.Status{
		Message:      weir.Message{ID: id, Key: "/a", Contract: "article", AcceptedAt: noon},
		Stage:        weir.Delivered,
		AttemptCount: 2, CMSStatus: 200,
		FinishedAt: noon.Add(time.Second), Version: `W/"7"`,
		Attempts: []weir.Attempt{{Number: 1, Outcome: weir.OutcomeRetry, Status: 500},
			{Number: 2, Outcome: weir.OutcomeDelivered}},
	}

	mux := http.NewServeMux()
	mux.Handle("/api/messages/{id}",
		&status.Function{Log: reader{st: st}, Forecaster: reader{st: st}, Past: reader{st: st},
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	get := func(id, tag string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(),
			httptest.NewRequest(http.MethodGet, "/api/messages/"+id, nil)
		r.Header.Set("If-None-Match", tag)
		mux.ServeHTTP(w, r)
		return w
	}

	w := get(id.String(), "")
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}

	if w.Code != 200 || got["stage"] != "delivered" || got["attempts"] != 2.0 ||
		got["deliveredAt"] != "2026-01-08T12:00:01Z" || got["nextAttemptAt"] != nil ||
		len(got["attemptLog"].([]any)) != 2 {
		t.Errorf("got %d %s, want status 200, stage delivered, attempts 2, deliveredAt 2026-01-08T12:00:01Z, no "+
			"nextAttemptAt and an attemptLog of 2", w.Code, w.Body)
	}

	if w := get(id.String(), w.Header().Get("ETag")); w.Code != 304 || w.Body.Len() != 0 {
		t.Errorf("with its ETag: got %d %s, want status 304 and an empty body", w.Code, w.Body)
	}

	if w := get(id.String()+"?outlook=perhaps", ""); w.Code != 400 ||
		w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("a wrong outlook: got %d %s, want status 400 and Content-Type application/problem+json", w.Code,
			w.Body)
	}

	for _, wrong := range []string{other.String(), "nonsense", id.String() + "A", "AAAA"} {
		if w := get(wrong, ""); w.Code != 404 ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: got %d %s, want status 404 and Content-Type application/problem+json",
				wrong, w.Code, w.Body)
		}
	}
}

func TestFunction_Forecast(t *testing.T) {
	t.Parallel()
	id := weir.ID{Epoch: 1, Lane: 2, Seq: 3, Nonce: "00112233445566778899"}
	st := weir.Status{Message: weir.Message{ID: id, Key: "/a",
		AcceptedAt: time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)}, Stage: weir.Queued,
		Version: `W/"7"`}
	ask := func(r reader, query string) map[string]any {
		mux, w := http.NewServeMux(), httptest.NewRecorder()
		mux.Handle("/api/messages/{id}",
			&status.Function{Log: r, Forecaster: r, Past: r,
				Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet,
			"/api/messages/"+id.String()+query, nil))
		var got map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("got %d %s, %v, want status 200 and no error", w.Code, w.Body, err)
		}

		return got
	}
	if got := ask(reader{st: st}, "?outlook=1"); got["position"] != 3.0 ||
		got["expectedAt"] != "2026-01-08T12:01:00Z" || got["waitsFor"] != "its turn" {
		t.Errorf("got %v, want position 3, expectedAt 2026-01-08T12:01:00Z and waitsFor \"its turn\"", got)
	}

	if got := ask(reader{st: st, fails: errors.New("storage is away")}, "?outlook=true"); got["stage"] != "queued" ||
		got["position"] != nil || got["waitsFor"] != nil {
		t.Errorf("with a failed forecast: got %v, want the stage alone", got)
	}

	for _, query := range []string{"", "?outlook=0", "?outlook=false"} {
		if got := ask(reader{st: st, unasked: t}, query); got["stage"] != "queued" ||
			got["waitsFor"] != nil {
			t.Errorf("%q: got %v, want stage queued and no waitsFor", query, got)
		}
	}

	st.Stage = weir.Delivered
	if got := ask(reader{st: st, unasked: t}, "?outlook=1"); got["position"] != nil ||
		got["expectedAt"] != nil ||
		got["waitsFor"] != nil {
		t.Errorf("of a final message: got %v, want no position, no expectedAt and no waitsFor", got)
	}

	st.Attempts = []weir.Attempt{{Number: 1, At: st.Message.AcceptedAt.Add(20 * time.Second)}}
	got, _ := ask(reader{st: st}, "?outlook=1")["uncounted"].(map[string]any)
	if got["attempts"] != 5.0 || got["status"] != 503.0 {
		t.Errorf("after a long wait: got uncounted %v, want 5 attempts and status 503", got)
	}

	if got := ask(reader{st: st}, "")["uncounted"]; got != nil {
		t.Errorf("without outlook: got uncounted %v, want none", got)
	}

	failed := reader{st: st, fails: errors.New("storage is away")}
	if got := ask(failed, "?outlook=1"); got["stage"] != "delivered" {
		t.Errorf("with a failed read: got %v, want the stage", got)
	}

	st.Attempts[0].At = st.Message.AcceptedAt.Add(4 * time.Second)
	if got := ask(reader{st: st}, "?outlook=1")["uncounted"]; got != nil {
		t.Errorf("after a short wait: got uncounted %v, want none", got)
	}
}
