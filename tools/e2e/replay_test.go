package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"time"
)

func articleWithTitle(path string, version int, title string) string {
	return fmt.Sprintf(`<article path="%s" version="%d"><title>%s</title></article>`, path,
		version, title)
}

func (s *system) postBody(body string) (address, id string) {
	s.t.Helper()
	code, _, said := s.requestJSON("POST", s.weir+"/api/messages", body)
	if code != http.StatusAccepted {
		s.t.Fatalf("got %d %v, want 202", code, said)
	}

	id, _ = said["id"].(string)
	return s.weir + "/api/messages/" + id, id
}

func (s *system) awaitStageAt(address, stage string) postedMessage {
	s.t.Helper()
	var m postedMessage
	s.awaitCondition(address+" is "+stage, 2*time.Minute, func() bool {
		m = getJSON[postedMessage](s, address)
		return m.Stage == stage
	})

	return m
}

// writtenVersions returns the versions of a path that the CMS accepted, in the order of the
// requests.
func (s *system) writtenVersions(path string) (versions []int) {
	for _, r := range s.readRequests() {
		if r.Path == path && r.Status < 300 {
			versions = append(versions, r.Version)
		}
	}
	return versions
}

// Weir delivers a corrected dead message before its key's waiting messages, although the test kills
// handlers. After a later message of the key was delivered, a replay needs force.
func TestReplay(t *testing.T) {
	s := newSystem(t, 2, "lease: 30s", "lease: 15s", "{ min: 1s, max: 5m }", "[20s]")
	s.setFaults(`{"rejectText":"Helo"}`)
	dead, _ := s.postBody(articleWithTitle("/news/1", 1, "Helo"))
	s.awaitStageAt(dead, "dead")
	if code, _, said := s.requestJSON("GET", dead+"/difference", ""); code != http.StatusNotFound {
		t.Errorf("difference without an edit: got %d %v, want 404", code, said)
	}

	if page := s.readPage("/api/dashboard/messages/" + path.Base(dead)); strings.Contains(page,
		"needs Force") {
		t.Errorf("got the page\n%s\nwant that a replay needs no force, because no later message was delivered", page)
	}

	s.setFaults(`{"failPath":"/news/1"}`)
	next, _ := s.postBody(articleWithTitle("/news/1", 2, "Hello"))
	last, _ := s.postBody(articleWithTitle("/news/1", 3, "Hello"))
	s.awaitStageAt(next, "retrying")
	s.setFaults(`{"rejectText":"Helo"}`)

	for body, want := range map[string]int{articleWithTitle("/news/2", 1, "Hello"): 422,
		"<article": 400, articleWithTitle("/news/1", 1, ""): 422} {
		if code, _, said := s.requestJSON("POST", dead+"/edit", body); code != want {
			t.Errorf("edit to %s: got %d %v, want %d", body, code, said, want)
		}
	}

	code, _, said := s.requestJSON("POST",
		dead+"/edit?note="+url.QueryEscape("a letter was missing"),
		articleWithTitle("/news/1", 1, "Hello"))
	if code != http.StatusAccepted {
		t.Fatalf("edit: got %d %v, want 202", code, said)
	}

	for turn := range 2 {
		s.killNext(turn)
	}

	s.awaitCondition("the system is ready again", startLimit,
		func() bool { return s.getStatus(s.weir+"/api/health") == http.StatusOK })
	s.awaitStageAt(last, "delivered")
	if got := fmt.Sprint(slices.Compact(s.writtenVersions("/news/1"))); got != "[1 2 3]" {
		t.Errorf("written: %s, want [1 2 3]", got)
	}

	_, _, said = s.requestJSON("GET", dead, "")
	edited, _ := said["edited"].(map[string]any)
	if said["stage"] != "delivered" || said["replays"] != 1.0 || said["attempts"] != 2.0 ||
		edited["note"] != "a letter was missing" {
		t.Errorf("got %v, want delivered after one replay and two attempts, with the note", said)
	}

	if _, _, said = s.requestJSON("GET", dead+"/difference", ""); !strings.Contains(
		fmt.Sprint(said["difference"]), "-  <title>Helo</title>\n+  <title>Hello</title>") {
		t.Errorf("got %v, want a difference with both titles", said)
	}

	s.checkRecord()
	s.replayByForce()
}

// replayByForce replays a dead message whose key has a later delivery.
func (s *system) replayByForce() {
	s.t.Helper()
	dead, _ := s.postBody(articleWithTitle("/news/3", 1, "Helo"))
	s.awaitStageAt(dead, "dead")
	behind, id := s.postBody(articleWithTitle("/news/3", 2, "Hello"))
	s.awaitStageAt(behind, "delivered")
	s.setFaults(`{}`)
	code, _, said := s.requestJSON("POST", dead+"/replay", "")
	if code != http.StatusConflict || !strings.Contains(fmt.Sprint(said["detail"]), id) {
		s.t.Errorf("replay: got %d %v, want 409 that names the later message", code, said)
	}

	page := s.readPage("/api/dashboard/messages/" + path.Base(dead))
	if !strings.Contains(page, "A replay needs Force.") ||
		!strings.Contains(page, "a later message of its key was delivered: "+id) {
		s.t.Errorf("got the page\n%s\nwant that a replay needs force, because of %s", page, id)
	}

	if code, _, said = s.requestJSON("POST", dead+"/replay?force=true", ""); code !=
		http.StatusAccepted {
		s.t.Fatalf("replay by force: got %d %v, want 202", code, said)
	}

	s.awaitStageAt(dead, "delivered")
	if got := fmt.Sprint(s.writtenVersions("/news/3")); got != "[2 1]" {
		s.t.Errorf("written: %s, want [2 1]", got)
	}

	if code, _, said = s.requestJSON("POST", dead+"/replay", ""); code != http.StatusConflict {
		s.t.Errorf("replay of a delivered message: got %d %v, want 409", code, said)
	}
}
