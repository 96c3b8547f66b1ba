package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// pauseList has some fields of the answer to GET /api/pauses.
type pauseList struct {
	Pauses []struct {
		Scope, Key, Reason string
		Lane               int
	}
	Calendar struct{ Closed bool }
}

// While all lanes are paused, no request reaches the CMS, even after the test has killed handlers.
// After the resume the CMS gets all messages, in order per key.
func TestPause_OutlivesHandlers(t *testing.T) {
	s := newSystem(t, 2, "lanes: 1 ", "lanes: 2 ", "lease: 30s", "lease: 15s")
	posted := make(chan []postedMessage, 1)
	go func() { posted <- s.postBurst(t.Context(), 6, 30) }()
	s.awaitCondition("the lanes move", time.Minute,
		func() bool { return s.readStats().Writes >= 20 })
	s.requestPause("pause", `{"all":true,"reason":"the CMS is being upgraded"}`, 200, 2)
	paused := time.Now()
	accepted := <-posted
	if out, code := s.runLanesCommand("3"); code != 1 {
		t.Errorf("weir lanes while paused: exit code %d, want 1: %s", code, out)
	}

	for kill := range 2 {
		s.killNext(kill)
	}

	s.awaitCondition("both run again, and time passes", startLimit, func() bool {
		return time.Since(paused) > 12*time.Second &&
			s.getStatus(s.weir+"/api/health") == http.StatusOK
	})

	got := getJSON[pauseList](s, s.weir+"/api/pauses")
	if len(got.Pauses) != 2 || got.Pauses[1].Scope != "lane" || got.Pauses[1].Lane != 1 ||
		got.Pauses[1].Reason != "the CMS is being upgraded" || got.Calendar.Closed {
		t.Errorf("got %+v, want two pauses, the second of lane 1, and an open calendar", got)
	}

	before := len(s.readRequests())

	for _, r := range s.readRequests() {
		// A pause takes effect within 1.5 s. A busy machine can take longer.
		if late := r.StartedAt.Sub(paused); late > 10*time.Second {
			t.Errorf("%s was sent %s after the pause, want at most 10s", r.Path, late)
		}
	}

	s.requestPause("resume", `{"all":true}`, 200, 0)
	s.awaitStages(accepted, "delivered", time.Minute)

	if st := s.readStats(); before >= 180 || st.Writes-st.Repeats != 180 || st.Duplicates != 0 ||
		st.Overlaps != 0 ||
		st.Inversions != 0 {
		t.Errorf("%d requests before the resume, want fewer than 180; then %+v, want 180 in order",
			before, st)
	}

	s.checkHistory(accepted)
}

// A pause of a key holds back only the messages of that key. A pause with an end time ends by
// itself.
func TestPause_Key(t *testing.T) {
	s := newSystem(t, 1)
	s.requestPause("pause", `{"key":"/p/1","reason":"it breaks the page"}`, 200, 1)
	accepted := s.postBurst(t.Context(), 3, 5)
	var others, stopped []postedMessage
	for _, m := range accepted {
		if m.Key == "/p/1" {
			stopped = append(stopped, m)
		} else {
			others = append(others, m)
		}
	}

	s.awaitStages(others, "delivered", time.Minute)

	for _, m := range stopped {
		if got := getJSON[postedMessage](s, m.Location); got.Stage != "queued" {
			t.Errorf("got %+v, want a queued message", got)
		}
	}

	for body, status := range map[string]int{`{"key":"/p/1"}`: 422, `{"lane":7,"reason":"r"}`: 404,
		`{"all":true,"reason":"r","util":"x"}`: 400} {
		s.requestPause("pause", body, status, -1)
	}

	until := time.Now().Add(10 * time.Second)
	s.requestPause("pause", fmt.Sprintf(`{"key":"/p/1","reason":"it breaks the page","until":%q}`,
		until.Format(time.RFC3339Nano)), 200, 1)
	s.awaitStages(stopped, "delivered", time.Minute)

	for _, r := range s.readRequests() {
		if r.Path == "/p/1" && r.StartedAt.Before(until) {
			t.Errorf("%s was sent %s before the end of its pause, want it later", r.Path,
				until.Sub(r.StartedAt))
		}
	}

	s.checkRecord()
}

// requestPause posts to /api/pause or to /api/resume: "what" is "pause" or "resume". It checks the
// status of the answer and the number of pauses in the answer. If "pauses" is -1, it accepts any
// number.
func (s *system) requestPause(what, body string, status, pauses int) {
	s.t.Helper()
	code, _, said := s.requestJSON("POST", s.weir+"/api/"+what, body, "Content-Type",
		"application/json")
	list, _ := said["pauses"].([]any)
	if code != status || (pauses >= 0 && len(list) != pauses) {
		s.t.Fatalf("%s %s: got %d %v, want %d and %d pauses", what, body, code, said,
			status, pauses)
	}
}
