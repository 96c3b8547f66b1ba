package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/weir"
)

// A contract with a misspelt path refuses all posts. Page, API and metrics must name the contract
// and the rule.
func TestRunning_ShowsRefusedPosts(t *testing.T) {
	t.Parallel()
	r := newTestRunningWith(t, strings.Replace(minimal, "./@path", "./@pfad", 1))
	if err := r.store.EnsureControlRows(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}

	const posts = 6
	for range posts {
		post := httptest.NewRequest(http.MethodPost, "/api/messages",
			strings.NewReader(`<article path="/a"/>`))
		post.Header.Set("Content-Type", "application/xml")
		answer := httptest.NewRecorder()
		if r.handler.ServeHTTP(answer, post); answer.Code != http.StatusUnprocessableEntity {
			t.Fatalf("got %d %s, want 422", answer.Code, answer.Body)
		}
	}

	r.instruments.Poisoned()

	for path, wants := range map[string][]string{
		"/api/history": {
			`{"way":"post","reason":"invalid","contract":"article","rule":"./@pfad required","count":6}`,
			`"poisonedTickets":1`},
		"/api/metrics": {
			`weir_messages_refused_by_rule_total{contract="article",rule="./@pfad required",way="post"} 6`,
			"weir_tickets_poisoned_total 1"},
		"/api/dashboard": {"More messages are refused than accepted.", "./@pfad required",
			"contract article", "The host gave up 1 ticket"},
	} {
		answer := httptest.NewRecorder()
		r.handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))

		for _, want := range wants {
			if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), want) {
				t.Errorf("%s: got %d and\n%s\nwant 200 and %q", path, answer.Code,
					answer.Body, want)
			}
		}
	}
}

// Storage that throttles is no failure, because Weir repeats the requests. The check must show it
// nevertheless.
func TestRunning_CheckShowsThrottling(t *testing.T) {
	t.Parallel()
	r := newTestRunning(t)
	if err := r.store.EnsureControlRows(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}

	if detail, err := r.checkTable(t.Context()); detail != "" || err != nil {
		t.Errorf("got %q and %v, want no hint before", detail, err)
	}

	r.instruments.recorder.Throttled = func() int64 { return 291 }
	if detail, err := r.checkTable(t.Context()); !strings.Contains(detail, "throttled 291 requests") || err != nil {
		t.Errorf("got %q and %v, want a hint at 291 throttled requests, and no error", detail, err)
	}
}

func TestSubmissions_CountsByRule(t *testing.T) {
	t.Parallel()
	r := newTestRunning(t)
	submissions{r.instruments, "file"}.Refused(&weir.Error{Kind: weir.TooLarge})
	answer := httptest.NewRecorder()
	r.handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/api/history", nil))

	if want := `{"way":"file","reason":"too_large","count":1}`; !strings.Contains(
		answer.Body.String(), want) {
		t.Errorf("got %s, want %s", answer.Body, want)
	}
}
