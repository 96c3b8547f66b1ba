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
	"weir/internal/audit"
	"weir/internal/weir"
)

// auditLog answers each query with one page, and stores the query.
type auditLog struct {
	page  audit.Page
	err   error
	asked *audit.Query
}

func (f *auditLog) Read(_ context.Context, q audit.Query) (audit.Page, error) {
	f.asked = &q
	return f.page, f.err
}

func (f *auditLog) get(query string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	(&view.Audit{Reader: f, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/api/audit?"+query, nil))
	return w
}

func TestAudit_AnswersWithEntries(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		page audit.Page
		want string
	}{
		"None": {audit.Page{}, `{"entries":[]}`},
		"Whole": {audit.Page{Entries: []audit.Entry{{At: at, Action: "pause", Subject: "s", Detail: `{"all":true}`,
			Function: "write", Status: 200, Principal: "jo", KeyID: "3fa9c2d1", From: "203.0.113.4",
			Invocation: "i"}},
			Continue: "row"},
			`{"entries":[{"at":"2026-01-08T12:00:00Z","action":"pause","subject":"s","detail":{"all":true},` +
				`"function":"write","status":200,"principal":"jo","keyId":"3fa9c2d1","from":"203.0.113.4",` +
				`"invocationId":"i"}],"continue":"row"}`},
		"Redacted": {audit.Page{Entries: []audit.Entry{{At: at, Action: "edit", Function: "write", RedactedAt: at,
			RedactedBy: "id1 id2"}}},
			`{"entries":[{"at":"2026-01-08T12:00:00Z","action":"edit","function":"write",` +
				`"redactedAt":"2026-01-08T12:00:00Z","redactedBy":["id1","id2"]}]}`},
		"Empty": {audit.Page{Entries: []audit.Entry{{At: at, Action: "lanes", Function: "command"}}},
			`{"entries":[{"at":"2026-01-08T12:00:00Z","action":"lanes","function":"command"}]}`},
		"DetailIsNoJSON": {audit.Page{Entries: []audit.Entry{{At: at, Action: "edit", Detail: `{"cut`,
			Function: "write"}}},
			`{"entries":[{"at":"2026-01-08T12:00:00Z","action":"edit","function":"write"}]}`},
	} {
		w := (&auditLog{page: c.page}).get("")
		if got := strings.TrimSpace(w.Body.String()); w.Code != http.StatusOK || got != c.want {
			t.Errorf("%s: got %d %s, want 200 %s", name, w.Code, got, c.want)
		}
	}
}

func TestAudit_PassesTheQueryOn(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]audit.Query{
		"":                       {Limit: 50},
		"limit=500&code=key":     {Limit: 500},
		"action=pause&limit=1":   {Action: "pause", Limit: 1},
		"subject=a&continue=row": {Subject: "a", Continue: "row", Limit: 50},
	} {
		f := &auditLog{}
		if w := f.get(query); w.Code != http.StatusOK || f.asked == nil || *f.asked != want {
			t.Errorf("%s: got %d after %+v, want 200 after %+v", query, w.Code, f.asked, want)
		}
	}
}

func TestAudit_RefusesWrongParameters(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"limit=0": "limit is a number from 1 to 500", "limit=501": "limit is",
		"limit=many":                          "limit is",
		"continue=" + strings.Repeat("r", 65): "continue is not from an earlier answer",
	} {
		f := &auditLog{}
		if w := f.get(query); w.Code != http.StatusBadRequest ||
			!strings.Contains(w.Body.String(), want) ||
			f.asked != nil {
			t.Errorf("%s: got %d %s, want 400 %s, and no read of the audit log", query, w.Code,
				w.Body, want)
		}
	}

	away := &auditLog{err: &weir.Error{Kind: weir.Unavailable, Op: "audit", Message: "away"}}
	if w := away.get(""); w.Code != http.StatusServiceUnavailable ||
		!strings.Contains(w.Body.String(), "away") {
		t.Errorf("got %d %s, want 503 and its reason", w.Code, w.Body)
	}
}
