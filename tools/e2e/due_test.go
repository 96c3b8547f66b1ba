package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// requestJSON sends a request, and returns the status, the ETag and the decoded answer. headers
// alternates names and values. The default Content-Type of a POST is application/xml.
func (s *system) requestJSON(method, url, body string, headers ...string) (int, string,
	map[string]any) {
	s.t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}

	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/xml")
	}

	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}

	resp, err := s.sendRequest(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(resp.Body)
	var said map[string]any
	if err := json.Unmarshal(data, &said); err != nil {
		s.t.Fatalf("%s %s: answered %d %q, want JSON", method, url, resp.StatusCode, data)
	}

	return resp.StatusCode, resp.Header.Get("ETag"), said
}

func articleXML(path string, version int) string {
	return fmt.Sprintf(`<article path="%s" version="%d"><title>T</title></article>`, path, version)
}

// firstRequestTime returns the start of the CMS's first request for a path, or the zero time if
// there is no such request.
func (s *system) firstRequestTime(path string) time.Time {
	for _, r := range s.readRequests() {
		if r.Path == path {
			return r.StartedAt
		}
	}
	return time.Time{}
}

func TestDueTimes(t *testing.T) {
	s := newSystem(t, 1)
	messages := s.weir + "/api/messages"
	due := time.Now().Add(8 * time.Second)
	code, _, at := s.requestJSON("POST", messages, articleXML("/at", 1), "Weir-Deliver-At",
		due.Format(time.RFC3339Nano))
	if code != 202 || at["stage"] != "scheduled" || at["deliverAtFrom"] != "header" {
		t.Errorf("with Weir-Deliver-At: got %d %v, want 202, scheduled by the header", code, at)
	}

	_, _, later := s.requestJSON("POST", messages+"?deliverAfter=P1D", articleXML("/later", 1))
	_, _, gone := s.requestJSON("POST", messages, articleXML("/gone", 1),
		"Weir-Deliver-After", "1h")
	one := func(m map[string]any) string { return messages + "/" + m["id"].(string) }

	code, tag, state := s.requestJSON("GET", one(later), "")
	if code != 200 || state["stage"] != "scheduled" || state["deliverAt"] == nil {
		t.Errorf("status: got %d %v, want 200, scheduled with deliverAt", code, state)
	}

	soon := time.Now().Add(10 * time.Second)
	patch := fmt.Sprintf(`{"deliverAt": %q}`, soon.Format(time.RFC3339Nano))
	if code, _, said := s.requestJSON("PATCH", one(later), patch, "If-Match", `"stale"`); code !=
		412 {
		t.Errorf("move with a stale ETag: got %d %v, want 412", code, said)
	}

	if code, newTag, said := s.requestJSON("PATCH", one(later), patch, "If-Match", tag); code !=
		200 || newTag == tag ||
		said["stage"] != "scheduled" {
		t.Errorf("move: got %d %v, want 200, scheduled under a new ETag", code, said)
	}

	_, _, past := s.requestJSON("POST", messages, articleXML("/past", 1),
		"Weir-Deliver-After", "1h")
	if code, _, said := s.requestJSON("PATCH", one(past), `{"deliverAt": "0001-01-01T00:00:00Z"}`); code != 200 {
		t.Errorf("move into the past: got %d %v, want 200", code, said)
	}

	s.awaitCondition("the message moved into the past is written", time.Minute,
		func() bool { return !s.firstRequestTime("/past").IsZero() })

	for _, wrong := range []string{`{"deliverAt": "soon"}`, `{}`,
		`{"deliverAt": "2030-01-01T00:00:00Z", "key": "x"}`, `[`} {
		if code, _, said := s.requestJSON("PATCH", one(later), wrong); code != 400 {
			t.Errorf("move by %s: got %d %v, want 400", wrong, code, said)
		}
	}

	if code, _, said := s.requestJSON("DELETE", one(gone), ""); code != 200 ||
		said["stage"] != "cancelled" {
		t.Errorf("cancel: got %d %v, want 200 and cancelled", code, said)
	}

	if code, _, said := s.requestJSON("DELETE", one(gone), ""); code != 200 {
		t.Errorf("cancelled twice: %d %v, want 200", code, said)
	}

	code, _, waited := s.requestJSON("POST", messages, articleXML("/waited", 1),
		"Prefer", "wait=10")
	if code != 200 || waited["stage"] != "delivered" {
		t.Errorf("with Prefer: wait: got %d %v, want 200 and delivered", code, waited)
	}

	if code, _, said := s.requestJSON("DELETE", one(waited), ""); code != 409 {
		t.Errorf("cancelled after delivery: %d %v, want 409", code, said)
	}

	for path, moment := range map[string]time.Time{"/at": due, "/later": soon} {
		s.awaitCondition(path+" is written", time.Minute,
			func() bool { return !s.firstRequestTime(path).IsZero() })
		late := s.firstRequestTime(path).Sub(moment)
		if t.Logf("%s was written %s after its moment", path, late); late < 0 {
			t.Errorf("%s was written %s early, want it at its due time or later", path, -late)
		}
	}

	s.awaitCondition("both are final", time.Minute, func() bool {
		_, _, a := s.requestJSON("GET", one(at), "")
		_, _, b := s.requestJSON("GET", one(later), "")
		return a["stage"] == "delivered" && b["stage"] == "delivered"
	})

	if !s.firstRequestTime("/gone").IsZero() {
		t.Errorf("the cancelled message was written at %s, want it never",
			s.firstRequestTime("/gone"))
	}
}

func TestDueTimes_EveryInstanceKilled(t *testing.T) {
	s := newSystem(t, 2, "lease: 30s", "lease: 15s")
	due := time.Now().Add(4 * time.Second)
	code, _, said := s.requestJSON("POST", s.weir+"/api/messages", articleXML("/at", 1),
		"Weir-Deliver-At", due.Format(time.RFC3339Nano))
	if code != 202 {
		t.Fatalf("got %d %v, want 202", code, said)
	}

	s.killNext(0)
	s.killNext(1)
	s.awaitCondition("it is written", time.Minute,
		func() bool { return !s.firstRequestTime("/at").IsZero() })

	if late := s.firstRequestTime("/at").Sub(due); late < 0 {
		t.Errorf("written %s early, want it at its due time or later", -late)
	} else {
		t.Logf("written %s after its moment, both instances having been killed", late)
	}

	s.checkRecord()
}
