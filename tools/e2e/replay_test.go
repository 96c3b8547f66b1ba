package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// letter is an article with a title.
func letter(path string, version int, title string) string {
	return fmt.Sprintf(`<article path="%s" version="%d"><title>%s</title></article>`, path, version, title)
}

// fileBody posts a body and gives the message's address and id.
func (s *system) fileBody(body string) (address, id string) {
	s.t.Helper()
	code, _, said := s.call("POST", s.weir+"/api/messages", body)
	if code != http.StatusAccepted {
		s.t.Fatalf("%d %v", code, said)
	}
	id, _ = said["id"].(string)
	return s.weir + "/api/messages/" + id, id
}

func (s *system) becomes(address, stage string) message {
	s.t.Helper()
	var m message
	s.eventually(address+" is "+stage, 2*time.Minute, func() bool {
		m = get[message](s, address)
		return m.Stage == stage
	})
	return m
}

// written are the versions that the CMS took for a path, in order.
func (s *system) written(path string) (versions []int) {
	for _, r := range s.requests() {
		if r.Path == path && r.Status < 300 {
			versions = append(versions, r.Version)
		}
	}
	return versions
}

// A dead message that is corrected goes in front of what waits of its key, whatever
// processes die meanwhile; one behind which something was delivered goes by force alone.
func TestReplay(t *testing.T) {
	s := newSystem(t, 2, "lease: 30s", "lease: 15s", "{ min: 1s, max: 5m }", "[20s]")
	s.faults(`{"rejectText":"Helo"}`)
	dead, _ := s.fileBody(letter("/news/1", 1, "Helo"))
	s.becomes(dead, "dead")
	if code, _, said := s.call("GET", dead+"/difference", ""); code != http.StatusNotFound {
		t.Errorf("%d %v", code, said)
	}
	s.faults(`{"failPath":"/news/1"}`)
	next, _ := s.fileBody(letter("/news/1", 2, "Hello"))
	last, _ := s.fileBody(letter("/news/1", 3, "Hello"))
	s.becomes(next, "retrying")
	s.faults(`{"rejectText":"Helo"}`)
	for body, want := range map[string]int{letter("/news/2", 1, "Hello"): 422, "<article": 400, letter("/news/1", 1, ""): 422} {
		if code, _, said := s.call("POST", dead+"/edit", body); code != want {
			t.Errorf("%s: %d %v", body, code, said)
		}
	}
	code, _, said := s.call("POST", dead+"/edit?note="+url.QueryEscape("a letter was missing"), letter("/news/1", 1, "Hello"))
	if code != http.StatusAccepted {
		t.Fatalf("%d %v", code, said)
	}
	for turn := range 2 {
		s.killNext(turn)
	}
	s.eventually("the system is ready again", startLimit, func() bool { return s.status(s.weir+"/api/health") == http.StatusOK })
	s.becomes(last, "delivered")
	if got := fmt.Sprint(slices.Compact(s.written("/news/1"))); got != "[1 2 3]" {
		t.Errorf("written: %s", got)
	}
	_, _, said = s.call("GET", dead, "")
	edited, _ := said["edited"].(map[string]any)
	if said["stage"] != "delivered" || said["replays"] != 1.0 || said["attempts"] != 2.0 || edited["note"] != "a letter was missing" {
		t.Errorf("%v", said)
	}
	if _, _, said = s.call("GET", dead+"/difference", ""); !strings.Contains(fmt.Sprint(said["difference"]), "-  <title>Helo</title>\n+  <title>Hello</title>") {
		t.Errorf("%v", said)
	}
	s.clean()
	s.replayByForce()
}

// replayByForce has a message delivered behind which another one was.
func (s *system) replayByForce() {
	s.t.Helper()
	dead, _ := s.fileBody(letter("/news/3", 1, "Helo"))
	s.becomes(dead, "dead")
	behind, id := s.fileBody(letter("/news/3", 2, "Hello"))
	s.becomes(behind, "delivered")
	s.faults(`{}`)
	code, _, said := s.call("POST", dead+"/replay", "")
	if code != http.StatusConflict || !strings.Contains(fmt.Sprint(said["detail"]), id) {
		s.t.Errorf("%d %v", code, said)
	}
	if code, _, said = s.call("POST", dead+"/replay?force=true", ""); code != http.StatusAccepted {
		s.t.Fatalf("%d %v", code, said)
	}
	s.becomes(dead, "delivered")
	if got := fmt.Sprint(s.written("/news/3")); got != "[2 1]" {
		s.t.Errorf("written: %s", got)
	}
	if code, _, said = s.call("POST", dead+"/replay", ""); code != http.StatusConflict {
		s.t.Errorf("%d %v", code, said)
	}
}
