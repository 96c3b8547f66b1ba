package audit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"weir/internal/audit"
)

// paced answers requests with a status, behind a Wrapper with a Pace.
type paced struct {
	clock   *clock
	log     *audit.Log
	handler http.Handler
	status  int
}

func newPaced(t *testing.T, function string) *paced {
	t.Helper()
	l, c, _ := newLog(t)
	l.Logger = quiet
	p := &paced{clock: c, log: l, status: http.StatusAccepted}
	p.handler = audit.Wrapper{Log: l, Pace: audit.NewPace()}.Wrap(function,
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(p.status) }))
	return p
}

func (p *paced) cancel(key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodDelete, "/api/messages/x", nil)
	r.Header.Set("X-Functions-Key", key)
	r.Pattern = "/api/messages/{id}"
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	return w
}

// A program that cancels or moves messages in a loop gets 429 before it has filled the log. Other
// keys go on, and the program goes on after a pause.
func TestPace_LimitsTheChangesOfAKey(t *testing.T) {
	t.Parallel()
	p := newPaced(t, "cancel")
	refused, last := 0, ""
	for range 3000 {
		p.clock.now = p.clock.now.Add(100 * time.Millisecond)
		if w := p.cancel("a"); w.Code == http.StatusTooManyRequests {
			refused, last = refused+1, w.Header().Get("Retry-After")
		}
	}

	if got := len(readAll(t, p.log, audit.Query{Limit: 500})); got != 1599 || refused != 1401 ||
		last != "1" {
		t.Errorf("got %d entries, %d refusals and Retry-After %q in five minutes, want 1599, 1401 and 1", got, refused,
			last)
	}

	if w := p.cancel("b"); w.Code != http.StatusAccepted {
		t.Errorf("another key: got %d, want 202", w.Code)
	}

	p.clock.now = p.clock.now.Add(time.Minute)
	if w := p.cancel("a"); w.Code != http.StatusAccepted {
		t.Errorf("after a minute: got %d, want 202", w.Code)
	}
}

// A request without an entry in the log is not counted, and an operator's key has no limit.
func TestPace_CountsEntriesOfProgramsOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		function string
		status   int
	}{"Refused": {"move", http.StatusConflict}, "Operator": {"write", http.StatusAccepted}} {
		p := newPaced(t, c.function)
		p.status = c.status
		for range 1200 {
			if w := p.cancel("a"); w.Code != c.status {
				t.Fatalf("%s: got %d, want %d", name, w.Code, c.status)
			}
		}
	}
}

// However many keys there are, each new one can make changes.
func TestPace_OfManyKeys(t *testing.T) {
	t.Parallel()
	p := newPaced(t, "move")
	for i := range 2500 {
		if w := p.cancel(fmt.Sprint("key ", i)); w.Code != http.StatusAccepted {
			t.Fatalf("key %d: got %d, want 202", i, w.Code)
		}
	}
}
