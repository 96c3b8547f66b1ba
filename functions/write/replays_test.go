package write_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/functions/write"
	"weir/internal/replay"
	"weir/internal/weir"
)

// jobs is a write.Jobs that records calls, and starts no job.
type jobs struct {
	specs   []replay.Spec // the arguments of the calls of Start and Plan
	planned bool          // true = Plan was called
	// the error of each method; Cancel of an unknown job returns NotFound instead
	err error
}

func (f *jobs) Start(_ context.Context, s replay.Spec) (replay.Job, error) {
	f.specs = append(f.specs, s)
	return replay.Job{ID: "one", State: replay.Running, RatePerMinute: s.RatePerMinute}, f.err
}

func (f *jobs) Plan(_ context.Context, s replay.Spec) (replay.Plan, error) {
	f.specs, f.planned = append(f.specs, s), true
	return replay.Plan{Count: 7, Complete: true}, f.err
}

func (f *jobs) Cancel(_ context.Context, id string) (replay.Job, error) {
	if id != "one" {
		return replay.Job{}, &weir.Error{Kind: weir.NotFound, Message: "none"}
	}
	return replay.Job{ID: id, State: replay.Cancelled}, f.err
}

func (f *jobs) serveRequest(method, address, body string) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	mux.Handle("POST /api/replays", &write.Replays{Jobs: f, Logger: quiet})
	mux.Handle("DELETE /api/replays/{id}", &write.CancelReplays{Jobs: f, Logger: quiet})
	r := httptest.NewRequest(method, address, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)

	return w
}

func TestReplays(t *testing.T) {
	t.Parallel()
	lane, from := 3, time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	plain := replay.Spec{RatePerMinute: 60, StopAtErrorRate: 0.5}
	all := replay.Spec{Filter: replay.Filter{Key: "/a", Lane: &lane, Contract: "article",
		Fingerprint: "0123456789ab", From: from, To: from.Add(time.Hour)},
		RatePerMinute: 600, StopAtErrorRate: 0, Force: true, Reason: "mended"}
	for name, c := range map[string]struct {
		body   string
		status int
		want   replay.Spec
	}{
		"Defaults": {`{"filter":{}}`, 202, plain},
		"All": {`{"filter":{"key":"/a","lane":3,"contract":"article","fingerprint":"0123456789ab","from":"2026-03-04T06:06:07+01:00","to":"2026-03-04T06:06:07Z"},
			"ratePerMinute":600,"stopAtErrorRate":0,"force":true,"reason":" mended "}`, 202, all},
		"DryRun":        {`{"filter":{},"dryRun":true}`, 200, plain},
		"NoFilter":      {`{}`, 422, plain},
		"NullFilter":    {`{"filter":null}`, 422, plain},
		"EmptyKey":      {`{"filter":{"key":""}}`, 422, plain},
		"UnknownField":  {`{"filter":{"stage":"dead"}}`, 400, plain},
		"NoTime":        {`{"filter":{"from":"yesterday"}}`, 400, plain},
		"TooLargeLane":  {`{"filter":{"lane":99999999999999999999}}`, 400, plain},
		"RateAsText":    {`{"filter":{},"ratePerMinute":"60"}`, 400, plain},
		"NoJSON":        {`filter`, 400, plain},
		"HalfALane":     {`{"filter":{"lane":1.5}}`, 400, plain},
		"NothingAtAll":  {``, 400, plain},
		"AnotherObject": {`[]`, 400, plain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &jobs{}
			w := f.serveRequest(http.MethodPost, "/api/replays", c.body)
			if w.Code != c.status {
				t.Fatalf("got %d %s, want %v", w.Code, w.Body, c.status)
			}

			if w.Code >= 400 {
				if len(f.specs) != 0 {
					t.Errorf("a refused request began the jobs %+v, want none", f.specs)
				}
				return
			}

			got := f.specs[0]
			if want := c.want.Filter.Lane; want != nil && *got.Filter.Lane == *want {
				got.Filter.Lane = want
			}

			if got != c.want || f.planned != (name == "DryRun") {
				t.Errorf("got %+v and a plan: %t; want %+v and a plan: %t", got, f.planned, c.want,
					name == "DryRun")
			}

			var answer map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}

			if f.planned && answer["count"] != 7.0 || !f.planned &&
				(answer["id"] != "one" ||
					w.Header().Get("Location") != "http://example.com/api/replays/one") {
				t.Errorf("got %v with %v, want the number 7 for a plan, or the id and the address of a job", answer,
					w.Header())
			}
		})
	}
}

func TestReplays_PassesErrorsOn(t *testing.T) {
	t.Parallel()
	for kind, status := range map[weir.Kind]int{weir.Conflict: 409, weir.Invalid: 422,
		weir.Unavailable: 503, weir.Internal: 500} {
		f := &jobs{err: &weir.Error{Kind: kind, Message: "no"}}
		for _, body := range []string{`{"filter":{}}`, `{"filter":{},"dryRun":true}`} {
			if w := f.serveRequest(http.MethodPost, "/api/replays", body); w.Code != status ||
				w.Header().Get("Location") != "" {
				t.Errorf("got %d %s, want status %v and no Location", w.Code, w.Body, status)
			}
		}

		if w := f.serveRequest(http.MethodDelete, "/api/replays/one", ""); w.Code != status {
			t.Errorf("got %d %s, want %v", w.Code, w.Body, status)
		}
	}
}

func TestCancelReplays(t *testing.T) {
	t.Parallel()
	f := &jobs{}
	if w := f.serveRequest(http.MethodDelete, "/api/replays/one", ""); w.Code != 200 ||
		!strings.Contains(w.Body.String(), `"state":"cancelled"`) {
		t.Errorf(`got %d %s, want status 200 and "state":"cancelled"`, w.Code, w.Body)
	}

	if w := f.serveRequest(http.MethodDelete, "/api/replays/other", ""); w.Code != 404 {
		t.Errorf("got %d %s, want 404", w.Code, w.Body)
	}
}
