package e2e_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/tools/funchost/host"
)

// asks sends a request, checks the status, and gives the answer. The name of a header that
// is to be sent stands before its value.
func (s *system) asks(status int, method, path, body string, header ...string) (answer string, headers http.Header) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.weir+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
		if strings.HasPrefix(body, "<") {
			req.Header.Set("Content-Type", "application/xml")
		}
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		s.t.Errorf("%s %s: %d, want %d: %s %v", method, path, resp.StatusCode, status, text, err)
	}
	return string(text), resp.Header
}

// accepts posts a message, and gives its id.
func (s *system) accepts(path string, header ...string) string {
	s.t.Helper()
	_, headers := s.asks(202, "POST", "/api/messages", titled(path, "T"), header...)
	location := headers.Get("Location")
	return location[strings.LastIndex(location, "/")+1:]
}

func titled(path, title string) string {
	return `<article path="` + path + `" version="1"><title>` + title + `</title></article>`
}

// reaches waits until a message has come to a stage.
func (s *system) reaches(id, stage string) {
	s.t.Helper()
	s.eventually(id+" is "+stage, time.Minute, func() bool { return get[message](s, s.weir+"/api/messages/"+id).Stage == stage })
}

// Every operation that is described is done once with success, in a system where something
// has happened. That each answer is as described is seen to by the client of all tests.
func TestOpenAPI_EveryOperation(t *testing.T) { inEachMode(t, testOpenAPIEveryOperation) }

func testOpenAPIEveryOperation(t *testing.T) {
	s := newSystem(t, 1, "min: 1s, max: 5m", "min: 50ms, max: 100ms")
	s.askMessages()
	dead := s.askDead()
	s.askReplays(dead)
	s.askCancellations()
	s.askPauses()
	s.askSchedules()
	s.askService()
	for _, operation := range answers.Missing() {
		t.Errorf("%s was not asked with success", operation)
	}
}

// unchanged returns the status of an answer to If-None-Match if nothing has changed. A host that
// forwards does not relay 304.
func (s *system) unchanged() int {
	if s.mode == host.Forwarding {
		return http.StatusOK
	}
	return http.StatusNotModified
}

func (s *system) askMessages() {
	s.asks(200, "POST", "/api/messages", titled("/a", "T"), "Prefer", "wait=30", "Idempotency-Key", "k")
	s.asks(202, "POST", "/api/messages", titled("/a", "T"), "Idempotency-Key", "k")
	s.asks(422, "POST", "/api/messages", titled("/a", ""))
	s.asks(400, "POST", "/api/messages?deliverAt=noon", titled("/a", "T"))
	s.asks(415, "POST", "/api/messages", `{}`)
	id := s.accepts("/later", "Weir-Deliver-After", "PT1H")
	_, headers := s.asks(200, "GET", "/api/messages/"+id, "")
	tag := headers.Get("ETag")
	s.asks(s.unchanged(), "GET", "/api/messages/"+id, "", "If-None-Match", tag)
	s.asks(200, "PATCH", "/api/messages/"+id, `{"deliverAt":"2040-01-31T08:00:00+01:00"}`, "If-Match", tag)
	s.asks(412, "PATCH", "/api/messages/"+id, `{"deliverAt":"2040-01-31T08:00:00+01:00"}`, "If-Match", tag)
	s.asks(400, "PATCH", "/api/messages/"+id, `{}`)
	s.asks(200, "GET", "/api/messages/"+id+"/attempts", "")
	s.asks(200, "DELETE", "/api/messages/"+id, "")
	s.asks(409, "DELETE", "/api/messages/"+id, "")
	s.asks(200, "POST", "/api/messages/"+s.accepts("/later", "Weir-Deliver-After", "PT1H")+"/cancel", "")
	s.asks(404, "GET", "/api/messages/none", "")
	s.asks(200, "GET", "/api/messages?stage=cancelled&lane=0&contract=article&text=LATER&from=2020-01-01T00:00:00Z&limit=1", "")
	s.asks(200, "GET", "/api/messages?key=/a", "")
	s.asks(400, "GET", "/api/messages?limit=0", "")
	s.asks(400, "GET", "/api/messages?continue=x", "")
}

// askDead has a message die, corrects it, and gives another one that is dead.
func (s *system) askDead() string {
	s.faults(`{"failPath":"/bad"}`)
	first := s.accepts("/bad")
	s.reaches(first, "dead")
	second := s.accepts("/bad")
	s.reaches(second, "dead")
	s.asks(200, "GET", "/api/messages?stage=dead", "")
	s.asks(200, "GET", "/api/errors?limit=5", "")
	s.asks(400, "GET", "/api/errors?limit=many", "")
	s.asks(200, "GET", "/api/messages/"+first+"/attempts", "")
	_, headers := s.asks(200, "GET", "/api/messages/"+first+"/body", "")
	s.asks(s.unchanged(), "GET", "/api/messages/"+first+"/body", "", "If-None-Match", headers.Get("ETag"))
	s.asks(404, "GET", "/api/messages/"+first+"/body?which=edited", "")
	s.asks(404, "GET", "/api/messages/"+first+"/difference", "")
	s.faults(`{}`)
	s.asks(422, "POST", "/api/messages/"+first+"/edit", titled("/other", "T"))
	s.asks(202, "POST", "/api/messages/"+first+"/edit?note=a+word", titled("/bad", "U"))
	s.reaches(first, "delivered")
	s.asks(200, "GET", "/api/messages/"+first, "")
	s.asks(200, "GET", "/api/messages/"+first+"/body?which=edited", "")
	s.asks(200, "GET", "/api/messages/"+first+"/difference", "")
	s.asks(409, "POST", "/api/messages/"+first+"/replay", "")
	s.asks(404, "POST", "/api/messages/none/replay", "")
	s.asks(202, "POST", "/api/messages/"+second+"/replay?force=true", "")
	s.reaches(second, "delivered")
	s.faults(`{"failPath":"/bad"}`)
	third := s.accepts("/bad")
	s.reaches(third, "dead")
	s.faults(`{}`)
	return third
}

func (s *system) askCancellations() {
	id := s.accepts("/unwanted/1", "Weir-Deliver-After", "PT1H")
	s.accepts("/wanted/1", "Weir-Deliver-After", "PT1H")
	counted, _ := s.asks(200, "POST", "/api/cancellations", `{"filter":{"keyPrefix":"/unwanted/","stage":"scheduled"},"dryRun":true}`)
	if !strings.Contains(counted, `"selected":1`) || !strings.Contains(counted, `"cancelled":0`) {
		s.t.Errorf("a dry run answered %s, want one selected and none cancelled", counted)
	}
	s.asks(202, "POST", "/api/cancellations", `{"filter":{"keyPrefix":"/unwanted/","contract":"article"},"reason":"a closed section"}`)
	s.reaches(id, "cancelled")
	s.asks(422, "POST", "/api/cancellations", `{"filter":{}}`)
	s.asks(400, "POST", "/api/cancellations", `{"everything":true}`)
	s.asks(415, "POST", "/api/cancellations", `<all/>`)
}

func (s *system) askReplays(dead string) {
	s.asks(200, "POST", "/api/replays", `{"filter":{"key":"/bad"},"dryRun":true}`)
	_, headers := s.asks(202, "POST", "/api/replays", `{"filter":{"lane":0,"contract":"article"},"ratePerMinute":600,"reason":"fixed"}`)
	job := strings.TrimPrefix(headers.Get("Location"), s.weir)
	s.reaches(dead, "delivered")
	s.eventually("the replay is done", 30*time.Second, func() bool { text, _ := s.asks(200, "GET", job, ""); return strings.Contains(text, `"done"`) })
	s.asks(200, "GET", "/api/replays", "")
	s.asks(404, "GET", "/api/replays/none", "")
	s.asks(404, "DELETE", "/api/replays/none", "")

	// One that is cancelled: while all is paused it cannot end.
	s.faults(`{"failPath":"/bad"}`)
	s.reaches(s.accepts("/bad"), "dead")
	s.asks(200, "POST", "/api/pause", `{"all":true,"reason":"a replay waits"}`)
	_, headers = s.asks(202, "POST", "/api/replays", `{"filter":{}}`)
	s.asks(200, "DELETE", strings.TrimPrefix(headers.Get("Location"), s.weir), "")
	s.asks(200, "POST", "/api/resume", `{"all":true}`)
	s.faults(`{}`)
	s.asks(400, "POST", "/api/replays", `{"everything":true}`)
	s.asks(415, "POST", "/api/replays", `<all/>`)
}

func (s *system) askPauses() {
	s.asks(200, "POST", "/api/pause", `{"lane":0,"reason":"the CMS moves","for":"1h"}`)
	s.asks(200, "POST", "/api/pause", `{"key":"/a","reason":"r","until":"2040-01-31T08:00:00Z"}`)
	s.asks(422, "POST", "/api/pause", `{"all":true}`)
	s.asks(404, "POST", "/api/pause", `{"lane":9,"reason":"r"}`)
	s.asks(415, "POST", "/api/pause", `<all/>`)
	s.asks(400, "POST", "/api/resume", `{"everything":true}`)
	s.asks(200, "GET", "/api/pauses", "")
	waiting := s.accepts("/a")
	s.asks(200, "GET", "/api/messages/"+waiting, "")
	s.asks(200, "GET", "/api/lanes", "")
	s.asks(200, "GET", "/api/lanes/0", "")
	s.asks(404, "GET", "/api/lanes/9", "")
	s.asks(404, "GET", "/api/lanes/x", "")
	s.asks(200, "POST", "/api/resume", `{"key":"/a"}`)
	s.asks(200, "POST", "/api/resume", `{"lane":0}`)
	s.reaches(waiting, "delivered")
}

func (s *system) askSchedules() {
	const definition = `{"cron":"30 2 * * *","timeZone":"Europe/Berlin","message":"<article path='/s' version='{{.Run}}'><title>T</title></article>"}`
	_, headers := s.asks(201, "PUT", "/api/schedules/nightly", definition)
	s.asks(200, "PUT", "/api/schedules/nightly", definition, "If-Match", headers.Get("ETag"))
	s.asks(412, "PUT", "/api/schedules/nightly", definition, "If-None-Match", "*")
	s.asks(422, "PUT", "/api/schedules/other", `{"cron":"x","message":"<a/>"}`)
	s.asks(202, "POST", "/api/schedules/nightly/run", "")
	s.asks(200, "GET", "/api/schedules/nightly", "")
	s.asks(200, "GET", "/api/schedules", "")
	s.asks(200, "GET", "/api/schedules/nightly/preview?count=200", "")
	s.asks(200, "POST", "/api/schedules/other/preview", definition)
	s.asks(200, "DELETE", "/api/schedules/nightly", "")
	s.asks(404, "GET", "/api/schedules/nightly", "")
	s.asks(404, "POST", "/api/schedules/nightly/run", "")
}

func (s *system) askService() {
	s.asks(200, "GET", "/api/health", "")
	s.asks(200, "HEAD", "/api/health", "")
	s.asks(200, "GET", "/api/checks", "")
	s.asks(200, "GET", "/api/metrics", "")
	s.asks(200, "GET", "/api/dashboard", "")
	s.asks(200, "GET", "/api/dashboard/messages", "")
	s.asks(200, "GET", "/api/history", "")
	s.asks(200, "GET", "/api/history?minutes=1440&lane=0", "")
	s.asks(400, "GET", "/api/history?minutes=0", "")
	_, headers := s.asks(200, "GET", "/api/openapi.yaml", "")
	s.asks(s.unchanged(), "GET", "/api/openapi.yaml", "", "If-None-Match", headers.Get("ETag"))
}
