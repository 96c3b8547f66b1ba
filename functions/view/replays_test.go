package view_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/functions/view"
	"weir/internal/replay"
	"weir/internal/weir"
)

// jobs implements view.Jobs.
type jobs struct {
	all []replay.Job
	err error // the error that List returns
}

func (f jobs) List(context.Context) ([]replay.Job, error) { return f.all, f.err }

func (f jobs) Get(_ context.Context, id string) (replay.Job, error) {
	for _, j := range f.all {
		if j.ID == id {
			return j, nil
		}
	}
	return replay.Job{}, &weir.Error{Kind: weir.NotFound, Message: "none"}
}

func TestReplays(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	lane := 0
	one := replay.Job{ID: "one", State: replay.Running, Filter: replay.Filter{Lane: &lane},
		RatePerMinute: 60, StopAtErrorRate: 0.5, Matched: 3, StartedAt: at, UpdatedAt: at}
	text := `{"id":"one","state":"running","filter":{"lane":0},"ratePerMinute":60,"stopAtErrorRate":0.5,"force":false,"matched":3,"replayed":0,"refused":0,"skipped":0,` +
		`"delivered":0,"deadAgain":0,"otherwise":0,"waiting":0,"startedAt":"2026-03-04T05:06:07Z","updatedAt":"2026-03-04T05:06:07Z"}`
	for name, c := range map[string]struct {
		jobs    jobs
		address string
		status  int
		text    string
	}{
		"None": {jobs{}, "/api/replays", 200, `{"replays":[]}`},
		"Some": {jobs{all: []replay.Job{one}}, "/api/replays", 200,
			`{"replays":[` + text + `]}`},
		"One":     {jobs{all: []replay.Job{one}}, "/api/replays/one", 200, text},
		"Another": {jobs{all: []replay.Job{one}}, "/api/replays/two", 404, ""},
		"Away": {jobs{err: &weir.Error{Kind: weir.Unavailable, Message: "away"}},
			"/api/replays", 503, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			for _, path := range []string{"/api/replays", "/api/replays/{id}"} {
				mux.Handle(path,
					&view.Replays{Jobs: c.jobs, Now: time.Now,
						Logger: slog.New(slog.DiscardHandler)})
			}

			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.address, nil))

			if got := strings.TrimSpace(w.Body.String()); w.Code != c.status ||
				c.text != "" && got != c.text {
				t.Errorf("got %d %s, want status %v and %v", w.Code, got, c.status, c.text)
			}
		})
	}
}
