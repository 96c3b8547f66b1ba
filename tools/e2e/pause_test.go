package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// pauseList is what is paused.
type pauseList struct {
	Pauses []struct {
		Scope, Key, Reason string
		Lane               int
	}
	Calendar struct{ Closed bool }
}

// TestPause_OutlivesHandlers: while all lanes are paused nothing reaches the CMS, whichever
// handlers are killed; then everything does, in order.
func TestPause_OutlivesHandlers(t *testing.T) {
	s := newSystem(t, 2, "lanes: 1 ", "lanes: 2 ", "lease: 30s", "lease: 15s")
	posted := make(chan []message, 1)
	go func() { posted <- s.burst(t.Context(), 6, 30) }()
	s.eventually("the lanes move", time.Minute, func() bool { return s.stats().Writes >= 20 })
	s.ask("pause", `{"all":true,"reason":"the CMS is being upgraded"}`, 200, 2)
	paused := time.Now()
	accepted := <-posted
	if out, code := s.lanes("3"); code != 1 {
		t.Errorf("lanes change while paused: %d %s", code, out)
	}
	for kill := range 2 {
		s.killNext(kill)
	}
	s.eventually("both run again, and time passes", startLimit, func() bool {
		return time.Since(paused) > 12*time.Second && s.status(s.weir+"/api/health") == http.StatusOK
	})
	got := get[pauseList](s, s.weir+"/api/pauses")
	if len(got.Pauses) != 2 || got.Pauses[1].Scope != "lane" || got.Pauses[1].Lane != 1 || got.Pauses[1].Reason != "the CMS is being upgraded" || got.Calendar.Closed {
		t.Errorf("%+v", got)
	}
	before := len(s.requests())
	for _, r := range s.requests() {
		// It is a second and a half, and what a busy machine adds.
		if late := r.StartedAt.Sub(paused); late > 6*time.Second {
			t.Errorf("%s was sent %s after the pause", r.Path, late)
		}
	}
	s.ask("resume", `{"all":true}`, 200, 0)
	s.allFinal(accepted, "delivered", time.Minute)
	if st := s.stats(); before >= 180 || st.Writes-st.Repeats != 180 || st.Duplicates != 0 || st.Overlaps != 0 || st.Inversions != 0 {
		t.Errorf("%d requests before it was resumed, then %+v", before, st)
	}
	s.linearizes(accepted)
}

// TestPause_Key: the messages of one key wait, and no others; a pause ends by itself.
func TestPause_Key(t *testing.T) {
	s := newSystem(t, 1)
	s.ask("pause", `{"key":"/p/1","reason":"it breaks the page"}`, 200, 1)
	accepted := s.burst(t.Context(), 3, 5)
	var others, stopped []message
	for _, m := range accepted {
		if m.Key == "/p/1" {
			stopped = append(stopped, m)
		} else {
			others = append(others, m)
		}
	}
	s.allFinal(others, "delivered", time.Minute)
	for _, m := range stopped {
		if got := get[message](s, m.Location); got.Stage != "queued" {
			t.Errorf("%+v", got)
		}
	}
	for body, status := range map[string]int{`{"key":"/p/1"}`: 422, `{"lane":7,"reason":"r"}`: 404, `{"all":true,"reason":"r","util":"x"}`: 400} {
		s.ask("pause", body, status, -1)
	}
	until := time.Now().Add(10 * time.Second)
	s.ask("pause", fmt.Sprintf(`{"key":"/p/1","reason":"it breaks the page","until":%q}`, until.Format(time.RFC3339Nano)), 200, 1)
	s.allFinal(stopped, "delivered", time.Minute)
	for _, r := range s.requests() {
		if r.Path == "/p/1" && r.StartedAt.Before(until) {
			t.Errorf("%s was sent %s early", r.Path, until.Sub(r.StartedAt))
		}
	}
	s.clean()
}

// ask pauses or resumes, and holds how many pauses are in force then.
func (s *system) ask(what, body string, status, pauses int) {
	s.t.Helper()
	code, _, said := s.call("POST", s.weir+"/api/"+what, body, "Content-Type", "application/json")
	list, _ := said["pauses"].([]any)
	if code != status || (pauses >= 0 && len(list) != pauses) {
		s.t.Fatalf("%s %s: %d %v", what, body, code, said)
	}
}
