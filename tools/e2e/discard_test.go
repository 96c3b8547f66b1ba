package e2e_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// An operator discards one dead message by its id, and then the key's other dead messages by weir
// discard --key. The test kills handlers meanwhile. Afterwards the CMS gets none of the discarded
// messages, and Weir delivers a later message of the key. The lane's counters and the audit log
// show the discards.
func TestDiscard_AlthoughHandlersAreKilled(t *testing.T) {
	s := newSystem(t, 2, "lease: 30s", "lease: 15s", "attempts: 5", "attempts: 2",
		"min: 1s, max: 5m", "min: 50ms, max: 100ms")
	s.setFaults(`{"failPath":"/gone"}`)
	var addresses []string
	for version := range 40 {
		address, _ := s.postBody(articleXML("/gone", version+1))
		addresses = append(addresses, address)
	}

	for _, address := range addresses {
		s.awaitStageAt(address, "dead")
	}

	s.setFaults(`{}`)
	sent := len(s.readRequests())
	s.killNext(0)
	s.awaitCondition("one discard is requested", 2*time.Minute, func() bool {
		return strings.Contains(s.askOnce("POST", addresses[0]+"/discard?reason=the+page+is+gone"), `"discardAskedAt"`) ||
			strings.Contains(s.askOnce("GET", addresses[0]), `"discardAskedAt"`)
	})

	s.awaitDiscarded(addresses[0])
	s.killNext(1)
	s.awaitCondition("the discard of all others is requested", 2*time.Minute, func() bool {
		out := s.runHandler(t.Context(), s.app, []string{"WEIR_URL=" + s.weir}, "discard", "--key",
			"/gone", "--yes", "--reason", "all are gone")
		return out.code == 0 &&
			strings.Contains(out.stdout, "39 messages: 39 requested, 0 came too late.")
	})

	s.killNext(0)
	for _, address := range addresses {
		s.awaitDiscarded(address)
	}

	code, _, said := s.requestJSON("POST", addresses[1]+"/replay?force=true", "")
	if code != 409 {
		t.Errorf("replay of a discarded message: got %d %v, want 409", code, said)
	}

	_, _, said = s.requestJSON("GET", addresses[1], "")
	if said["discardReason"] != "all are gone" || said["diedAt"] == nil || said["attempts"] != 2.0 {
		t.Errorf("got %v, want the reason, the time of death and two attempts", said)
	}

	if got := len(s.readRequests()); got != sent {
		t.Errorf("the CMS got %d requests for discarded messages, want 0", got-sent)
	}

	next, _ := s.postBody(articleXML("/gone", 50))
	s.awaitStageAt(next, "delivered")

	if b := s.readBalance(); b.Accepted != 41 || b.Discarded != 40 || b.Delivered != 1 ||
		b.Dead != 0 {
		t.Errorf("got %+v, want 41 accepted: 40 discarded, one delivered", b)
	}

	audit, _ := s.requestStatus(200, "GET", "/api/audit?limit=50", "")
	for _, want := range []string{`"action":"discard"`, `"action":"discard.many"`, "all are gone",
		"the page is gone"} {
		if !strings.Contains(audit, want) {
			t.Errorf("audit: got %s, want %s", audit, want)
		}
	}

	if answer, _ := s.requestStatus(200, "GET", "/api/errors", ""); !strings.Contains(answer,
		`"errors":[]`) {
		t.Errorf("errors: got %s, want none of discarded messages", answer)
	}

	listed, _ := s.requestStatus(200, "GET", "/api/messages?stage=discarded&limit=50", "")
	if got := strings.Count(listed, `"stage":"discarded"`); got != 40 {
		t.Errorf("got %d messages in the list of the stage, want 40", got)
	}
}

// awaitDiscarded waits until a message is discarded. It ignores failed requests, because the test
// kills handlers.
func (s *system) awaitDiscarded(address string) {
	s.t.Helper()
	s.awaitCondition(address+" is discarded", 2*time.Minute, func() bool {
		return strings.Contains(s.askOnce("GET", address), `"stage":"discarded"`)
	})
}

// askOnce returns the body of the answer to a request. If the test has killed the handler, so that
// there is no answer, askOnce returns "".
func (s *system) askOnce(method, address string) string {
	req, err := http.NewRequestWithContext(s.t.Context(), method, address, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}

	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return ""
	}

	return string(body)
}
