package view_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"weir/functions/view"
	"weir/internal/history"
	"weir/internal/weir"
)

// historian is a view.StatsReader. Series returns one minute, and records the arguments of the last
// call.
type historian struct {
	span, step time.Duration
	lane       int
}

func (h *historian) Series(_ context.Context, span, step time.Duration,
	lane int) ([]history.Minute, error) {
	h.span, h.step, h.lane = span, step, lane
	d := history.Durations{}
	d.Add(100 * time.Millisecond)
	return []history.Minute{{At: time.Unix(60, 0).UTC(),
		Lanes: map[int]*history.Lane{2: {Accepted: 3, Delivered: 2, Seen: true, Waiting: 1,
			Oldest: time.Second}},
		Attempts: map[weir.Outcome]int64{weir.OutcomeDelivered: 2}, Attempt: d,
		Transactions: map[string]int64{"table get": 4}}}, nil
}

func TestHistory(t *testing.T) {
	t.Parallel()
	ask := func(query string) (*httptest.ResponseRecorder, *historian) {
		source, w := &historian{}, httptest.NewRecorder()
		(&view.History{Source: source, Lanes: 4, Logger: slog.New(slog.DiscardHandler)}).ServeHTTP(w,
			httptest.NewRequest(http.MethodGet, "/api/history"+query, nil))
		return w, source
	}

	w, source := ask("?minutes=1440&lane=2")
	var got struct {
		StepSeconds float64
		Minutes     []view.HistoryStep
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
		t.Fatalf("got %d %s: %v, want status 200 and no error", w.Code, w.Body, err)
	}

	if source.span != 24*time.Hour || source.step != 15*time.Minute || source.lane != 2 ||
		got.StepSeconds != 900 {
		t.Errorf("got a read of %+v, want span 24h, step 15m, lane 2 and StepSeconds 900", source)
	}

	if m := got.Minutes[0]; m.Accepted != 3 || m.Delivered != 2 || m.Waiting != 1 ||
		m.Oldest != 1 ||
		m.Transactions != 4 || m.Attempt.P50 < 0.09 || m.Attempt.P50 > 0.11 {
		t.Errorf("got %+v, want Accepted 3, Delivered 2, Waiting 1, Oldest 1, Transactions 4 and P50 0.09 to 0.11", m)
	}

	if _, source := ask(""); source.span != time.Hour || source.step != time.Minute ||
		source.lane != -1 {
		t.Errorf("without parameters: got a read of %+v, want span 1h, step 1m and lane -1", source)
	}

	for _, query := range []string{"?minutes=0", "?minutes=x", "?minutes=999999", "?lane=4",
		"?lane=-1", "?minuets=5", "?lane=1&lane=2"} {
		if w, _ := ask(query); w.Code != http.StatusBadRequest {
			t.Errorf("%s: got %d, want 400", query, w.Code)
		}
	}
}
