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
	"weir/internal/weir"
)

type pauseReader struct {
	pauses []weir.Pause
	err    error
}

func (f pauseReader) ReadPauses(context.Context) ([]weir.Pause, error) { return f.pauses, f.err }

// hours is a calendar that is closed until the time in its field, and open after that time.
type hours struct{ until time.Time }

func (h hours) At(t time.Time) (bool, string, time.Time) {
	if t.Before(h.until) {
		return true, "night", h.until
	}
	return false, "", time.Time{}
}
func (h hours) Next(t time.Time) time.Time {
	if t.Before(h.until) {
		return h.until
	}
	return time.Time{}
}

func TestPauses(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for name, c := range map[string]struct {
		reader pauseReader
		hours  hours
		status int
		text   string
	}{
		"None": {pauseReader{}, hours{}, 200, `{"pauses":[],"calendar":{"closed":false}}`},
		"Closed": {pauseReader{}, hours{now.Add(time.Hour)}, 200,
			`{"pauses":[],"calendar":{"closed":true,"until":"2026-03-04T06:06:07Z","reason":"night","nextChange":"2026-03-04T06:06:07Z"}}`},
		"Some": {pauseReader{pauses: []weir.Pause{{Lane: 1, Reason: "fire", Since: now},
			{Lane: 2, Key: "k", Reason: "odd", Since: now, Until: now.Add(time.Hour)}}},
			hours{}, 200,
			`{"pauses":[{"scope":"lane","lane":1,"reason":"fire","since":"2026-03-04T05:06:07Z"},{"scope":"key","lane":2,"key":"k","reason":"odd","since":"2026-03-04T05:06:07Z","until":"2026-03-04T06:06:07Z"}],"calendar":{"closed":false}}`},
		"Away": {pauseReader{err: &weir.Error{Kind: weir.Unavailable, Message: "away"}},
			hours{}, 503, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			(&view.Pauses{Reader: c.reader, Calendar: c.hours, Now: func() time.Time { return now },
				Logger: slog.New(slog.DiscardHandler)}).ServeHTTP(w,
				httptest.NewRequest(http.MethodGet, "/api/pauses", nil))

			if got := strings.TrimSpace(w.Body.String()); w.Code != c.status ||
				(c.text != "" && got != c.text) {
				t.Errorf("got %d %s, want status %v and %v", w.Code, got, c.status, c.text)
			}
		})
	}
}
