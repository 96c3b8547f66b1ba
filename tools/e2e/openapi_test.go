package e2e_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/tools/funchost/host"
)

// requestStatus sends a request and checks the status of the answer. It returns the body and the
// headers of the answer. The argument "header" has names and values of request headers in turn. The
// Content-Type is XML if the body begins with <, and JSON otherwise.
func (s *system) requestStatus(status int, method, path, body string,
	header ...string) (answer string, headers http.Header) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.weir+path,
		strings.NewReader(body))
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

	resp, err := s.sendRequest(req)
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

// postAccepted posts an article, and returns the message's id.
func (s *system) postAccepted(path string, header ...string) string {
	s.t.Helper()
	_, headers := s.requestStatus(202, "POST", "/api/messages",
		titledArticle(path, anyTitle), header...)
	location := headers.Get("Location")
	return location[strings.LastIndex(location, "/")+1:]
}

// anyTitle is the title of the articles that askEveryOperation posts. It contains the text of the
// constant canary, because TestRedact_ReadersSeeNoValue searches answers and logs for this text.
const anyTitle = "qx7canary title"

func titledArticle(path, title string) string {
	return `<article path="` + path + `" version="1"><title>` + title + `</title></article>`
}

func (s *system) awaitStage(id, stage string) {
	s.t.Helper()
	s.awaitCondition(id+" is "+stage, time.Minute,
		func() bool { return getJSON[postedMessage](s, s.weir+"/api/messages/"+id).Stage == stage })
}

// Each operation of openapi.yaml succeeds at least once, in a system with messages of many stages.
// The transport of http.DefaultClient, which TestMain sets, checks each answer against
// openapi.yaml.
func TestOpenAPI_EveryOperation(t *testing.T) { inEachMode(t, testOpenAPIEveryOperation) }

func testOpenAPIEveryOperation(t *testing.T) {
	s := newSystem(t, 1, "min: 1s, max: 5m", "min: 50ms, max: 100ms",
		"root: delete", "root: delete\n    version: ./@version\n    supersede: true\n"+
			"    steps: [{ name: send, post: \"\", body: message, remember: \"{{ 'item-' + key }}\" }]")
	s.askEveryOperation()
	for _, operation := range answers.Missing() {
		t.Errorf("%s did not succeed in any call", operation)
	}
}

// askEveryOperation calls each operation of openapi.yaml. The contract "delete" must have versions
// and a step that remembers an id, as in testOpenAPIEveryOperation.
func (s *system) askEveryOperation() {
	s.checkMessages()
	s.checkBatches()
	dead := s.checkDead()
	s.checkReplays(dead)
	s.checkCancellations()
	s.checkPauses()
	s.checkSchedules()
	s.checkVersions()
	s.checkService()
}

// unchangedStatus returns the status of Weir's answer to If-None-Match if nothing has changed. Weir
// does not answer 304 under a forwarding host, because such a host closes the client's connection
// after a 304.
func (s *system) unchangedStatus() int {
	if s.mode == host.Forwarding {
		return http.StatusOK
	}
	return http.StatusNotModified
}

func (s *system) checkBatches() {
	feed := "<feed>" + titledArticle("/batch", anyTitle) + "<article/></feed>"
	_, headers := s.requestStatus(202, "POST", "/api/batches?mode=valid&split=/feed/article", feed,
		"Idempotency-Key", "b")
	s.requestStatus(202, "POST", "/api/batches?mode=valid&split=/feed/article", feed,
		"Idempotency-Key", "b")
	address := headers.Get("Location")
	s.awaitBatch(address, "its part is delivered", time.Minute,
		func(b postedBatch) bool { return b.Stages["delivered"] == 1 && len(b.Problems) == 1 })
	s.requestStatus(200, "GET", strings.TrimPrefix(address, s.weir), "")
	s.requestStatus(200, "GET", "/api/batches", "")
	s.requestStatus(404, "GET", "/api/batches/none", "")
	s.requestStatus(404, "DELETE", "/api/batches/none", "")
	s.requestStatus(409, "DELETE", strings.TrimPrefix(address, s.weir), "")
	_, headers = s.requestStatus(202, "POST", "/api/batches?split=/feed/article",
		writeFeed(10, 500))

	// The batch has 5,000 parts, so that the next request arrives before all parts are appended.
	s.requestStatus(202, "DELETE", strings.TrimPrefix(headers.Get("Location"), s.weir), "")
	s.requestStatus(400, "POST", "/api/batches?mode=some", feed)
	s.requestStatus(400, "POST", "/api/batches", feed, "Weir-Deliver-After", "1h")
	s.requestStatus(415, "POST", "/api/batches", `{}`)
	s.requestStatus(422, "POST", "/api/batches", feed)
	s.requestStatus(422, "POST", "/api/batches?split=/a[", feed)
}

func (s *system) checkMessages() {
	s.requestStatus(200, "POST", "/api/messages", titledArticle("/a", anyTitle),
		"Prefer", "wait=30", "Idempotency-Key", "k")
	_, delivered := s.requestStatus(202, "POST", "/api/messages", titledArticle("/a", anyTitle),
		"Idempotency-Key", "k")
	s.requestStatus(422, "POST", "/api/messages", titledArticle("/a", ""))
	s.requestStatus(400, "POST", "/api/messages?deliverAt=noon", titledArticle("/a", anyTitle))
	s.requestStatus(415, "POST", "/api/messages", `{}`)
	s.requestStatus(200, "POST", "/api/validate", titledArticle("/a", anyTitle))
	s.requestStatus(200, "POST", "/api/validate", titledArticle("/a", ""))
	s.requestStatus(200, "POST", "/api/validate", "<article>")
	s.requestStatus(415, "POST", "/api/validate", `{}`)
	id := s.postAccepted("/later", "Weir-Deliver-After", "PT1H")
	_, headers := s.requestStatus(200, "GET", "/api/messages/"+id, "")
	tag := headers.Get("ETag")
	s.requestStatus(s.unchangedStatus(), "GET", "/api/messages/"+id, "", "If-None-Match", tag)
	s.requestStatus(200, "PATCH", "/api/messages/"+id, `{"deliverAt":"2040-01-31T08:00:00+01:00"}`,
		"If-Match", tag)
	s.requestStatus(412, "PATCH", "/api/messages/"+id, `{"deliverAt":"2040-01-31T08:00:00+01:00"}`,
		"If-Match", tag)
	s.requestStatus(400, "PATCH", "/api/messages/"+id, `{}`)
	s.requestStatus(200, "GET", "/api/messages/"+id+"/attempts", "")
	s.requestStatus(200, "DELETE", "/api/messages/"+id, "")
	s.requestStatus(200, "DELETE", "/api/messages/"+id, "")
	s.requestStatus(409, "DELETE", strings.TrimPrefix(delivered.Get("Location"), s.weir), "")
	s.requestStatus(200, "POST", "/api/messages/"+id+"/reveal?as=text", "")
	s.requestStatus(200, "POST", "/api/messages/"+id+"/erase", "")
	s.requestStatus(200, "POST", "/api/messages/"+id+"/erase", "")
	s.requestStatus(200, "POST",
		"/api/messages/"+s.postAccepted("/later", "Weir-Deliver-After", "PT1H")+"/cancel", "")
	s.requestStatus(404, "GET", "/api/messages/none", "")
	s.requestStatus(200, "GET", "/api/messages?stage=cancelled&lane=0&contract=article&text=LATER"+
		"&from=2020-01-01T00:00:00Z&limit=1", "")
	s.requestStatus(200, "GET", "/api/messages?key=/a", "")
	s.requestStatus(200, "GET", "/api/messages?format=csv", "")
	s.requestStatus(200, "GET", "/api/messages?format=json&keyPrefix=/a", "")
	s.requestStatus(400, "GET", "/api/messages?limit=0", "")
	s.requestStatus(200, "GET", "/api/scheduled", "")
	s.requestStatus(200, "GET", "/api/scheduled?format=csv", "")
	s.requestStatus(400, "GET", "/api/messages?continue=x", "")
}

// checkVersions lets Weir forget a key's version, and the id that a step remembered for the key.
func (s *system) checkVersions() {
	s.requestStatus(200, "POST", "/api/messages", `<delete path="/gone" version="1"/>`,
		"Prefer", "wait=30")
	s.requestStatus(200, "GET", "/api/versions?key=/gone", "")
	s.requestStatus(400, "GET", "/api/versions", "")
	s.requestStatus(202, "POST", "/api/versions/forget", `{"key":"/gone","contract":"delete"}`)
	s.requestStatus(404, "POST", "/api/versions/forget", `{"key":"/never","contract":"delete"}`)
	s.requestStatus(200, "GET", "/api/remembered?key=/gone", "")
	s.requestStatus(202, "POST", "/api/remembered/forget", `{"key":"/gone","contract":"delete"}`)
	s.requestStatus(404, "POST", "/api/remembered/forget", `{"key":"/never","contract":"delete"}`)
}

// checkDead makes messages dead, and has some of them corrected, replayed or discarded. It returns
// the id of a message that is still dead.
func (s *system) checkDead() string {
	s.setFaults(`{"failPath":"/bad"}`)
	first := s.postAccepted("/bad")
	s.awaitStage(first, "dead")
	second := s.postAccepted("/bad")
	s.awaitStage(second, "dead")
	s.requestStatus(200, "GET", "/api/messages?stage=dead", "")
	s.requestStatus(200, "GET", "/api/errors?limit=5", "")
	s.requestStatus(400, "GET", "/api/errors?limit=many", "")
	s.requestStatus(200, "GET", "/api/messages/"+first+"/attempts", "")
	_, headers := s.requestStatus(200, "GET", "/api/messages/"+first+"/body", "")
	s.requestStatus(s.unchangedStatus(), "GET", "/api/messages/"+first+"/body", "", "If-None-Match",
		headers.Get("ETag"))
	s.requestStatus(404, "GET", "/api/messages/"+first+"/body?which=edited", "")
	s.requestStatus(404, "GET", "/api/messages/"+first+"/difference", "")
	s.setFaults(`{}`)
	s.requestStatus(422, "POST", "/api/messages/"+first+"/edit", titledArticle("/other", anyTitle))
	s.requestStatus(202, "POST", "/api/messages/"+first+"/edit?note=a+word",
		titledArticle("/bad", anyTitle+" U"))
	s.awaitStage(first, "delivered")
	s.requestStatus(200, "GET", "/api/messages/"+first, "")
	s.requestStatus(200, "GET", "/api/messages/"+first+"/body?which=edited", "")
	s.requestStatus(200, "GET", "/api/messages/"+first+"/difference", "")
	s.requestStatus(409, "POST", "/api/messages/"+first+"/replay", "")
	s.requestStatus(404, "POST", "/api/messages/none/replay", "")
	s.requestStatus(202, "POST", "/api/messages/"+second+"/replay?force=true", "")
	s.awaitStage(second, "delivered")
	s.setFaults(`{"failPath":"/bad"}`)
	third := s.postAccepted("/bad")
	s.awaitStage(third, "dead")
	s.checkDiscards()
	s.setFaults(`{}`)

	return third
}

// checkDiscards discards one dead message by its id, and another by a filter.
func (s *system) checkDiscards() {
	s.setFaults(`{"failPath":"/hopeless"}`)
	first, second := s.postAccepted("/hopeless"), s.postAccepted("/hopeless")
	s.awaitStage(second, "dead")
	s.requestStatus(202, "POST", "/api/messages/"+first+"/discard?reason=gone", "")
	s.awaitStage(first, "discarded")
	s.requestStatus(200, "POST", "/api/messages/"+first+"/discard", "")
	s.requestStatus(409, "POST", "/api/messages/"+first+"/replay", "")
	s.requestStatus(404, "POST", "/api/messages/none/discard", "")
	counted, _ := s.requestStatus(200, "POST", "/api/discards",
		`{"filter":{"key":"/hopeless"},"dryRun":true}`)
	if !strings.Contains(counted, `"selected":1`) || !strings.Contains(counted, `"asked":0`) {
		s.t.Errorf("a dry run answered %s, want one selected and none asked", counted)
	}

	s.requestStatus(202, "POST", "/api/discards", `{"filter":{"key":"/hopeless"},"reason":"gone"}`)
	s.awaitStage(second, "discarded")
	s.requestStatus(200, "GET", "/api/messages?stage=discarded", "")
	s.requestStatus(422, "POST", "/api/discards", `{"filter":{}}`)
	s.requestStatus(400, "POST", "/api/discards", `{"everything":true}`)
	s.requestStatus(415, "POST", "/api/discards", `<all/>`)
}

func (s *system) checkCancellations() {
	id := s.postAccepted("/unwanted/1", "Weir-Deliver-After", "PT1H")
	s.postAccepted("/wanted/1", "Weir-Deliver-After", "PT1H")
	counted, _ := s.requestStatus(200, "POST", "/api/cancellations",
		`{"filter":{"keyPrefix":"/unwanted/","stage":"scheduled"},"dryRun":true}`)
	if !strings.Contains(counted, `"selected":1`) || !strings.Contains(counted, `"cancelled":0`) {
		s.t.Errorf("a dry run answered %s, want one selected and none cancelled", counted)
	}

	s.requestStatus(202, "POST", "/api/cancellations",
		`{"filter":{"keyPrefix":"/unwanted/","contract":"article"},"reason":"a closed section"}`)
	s.awaitStage(id, "cancelled")
	s.requestStatus(422, "POST", "/api/cancellations", `{"filter":{}}`)
	s.requestStatus(400, "POST", "/api/cancellations", `{"everything":true}`)
	s.requestStatus(415, "POST", "/api/cancellations", `<all/>`)
}

func (s *system) checkReplays(dead string) {
	s.requestStatus(200, "POST", "/api/replays", `{"filter":{"key":"/bad"},"dryRun":true}`)
	_, headers := s.requestStatus(202, "POST", "/api/replays",
		`{"filter":{"lane":0,"contract":"article"},"ratePerMinute":600,"reason":"fixed"}`)
	job := strings.TrimPrefix(headers.Get("Location"), s.weir)
	s.awaitStage(dead, "delivered")
	s.awaitCondition("the replay is done", 30*time.Second,
		func() bool {
			text, _ := s.requestStatus(200, "GET", job, "")
			return strings.Contains(text,
				`"done"`)
		})

	s.requestStatus(200, "GET", "/api/replays", "")
	s.requestStatus(200, "GET", "/api/replays?format=csv", "")
	s.requestStatus(400, "GET", "/api/replays?format=pdf", "")
	s.requestStatus(404, "GET", "/api/replays/none", "")
	s.requestStatus(404, "DELETE", "/api/replays/none", "")

	// All lanes are paused, so that the next replay still runs when the test cancels it.
	s.setFaults(`{"failPath":"/bad"}`)
	s.awaitStage(s.postAccepted("/bad"), "dead")
	s.requestStatus(200, "POST", "/api/pause", `{"all":true,"reason":"a replay waits"}`)
	_, headers = s.requestStatus(202, "POST", "/api/replays", `{"filter":{}}`)
	s.requestStatus(200, "DELETE", strings.TrimPrefix(headers.Get("Location"), s.weir), "")
	s.requestStatus(200, "POST", "/api/resume", `{"all":true}`)
	s.setFaults(`{}`)
	s.requestStatus(400, "POST", "/api/replays", `{"everything":true}`)
	s.requestStatus(415, "POST", "/api/replays", `<all/>`)
}

func (s *system) checkPauses() {
	s.requestStatus(200, "POST", "/api/pause", `{"lane":0,"reason":"the CMS moves","for":"1h"}`)
	s.requestStatus(200, "POST", "/api/pause",
		`{"key":"/a","reason":"r","until":"2040-01-31T08:00:00Z"}`)
	s.requestStatus(422, "POST", "/api/pause", `{"all":true}`)
	s.requestStatus(404, "POST", "/api/pause", `{"lane":9,"reason":"r"}`)
	s.requestStatus(415, "POST", "/api/pause", `<all/>`)
	s.requestStatus(400, "POST", "/api/resume", `{"everything":true}`)
	s.requestStatus(200, "GET", "/api/pauses", "")
	waiting := s.postAccepted("/a")
	s.requestStatus(200, "GET", "/api/messages/"+waiting, "")
	s.requestStatus(200, "GET", "/api/lanes", "")
	s.requestStatus(200, "GET", "/api/lanes?format=csv", "")
	s.requestStatus(400, "GET", "/api/lanes?format=pdf", "")
	s.requestStatus(200, "GET", "/api/lanes/0", "")
	s.requestStatus(404, "GET", "/api/lanes/9", "")
	s.requestStatus(404, "GET", "/api/lanes/x", "")
	s.requestStatus(200, "POST", "/api/resume", `{"key":"/a"}`)
	s.requestStatus(200, "POST", "/api/resume", `{"lane":0}`)
	s.awaitStage(waiting, "delivered")
}

func (s *system) checkSchedules() {
	const definition = `{"cron":"30 2 * * *","timeZone":"Europe/Berlin",` +
		`"message":"<article path='/s' version='{{.Run}}'><title>` + anyTitle +
		`</title></article>"}`
	_, headers := s.requestStatus(201, "PUT", "/api/schedules/nightly", definition)
	s.requestStatus(200, "PUT", "/api/schedules/nightly", definition, "If-Match",
		headers.Get("ETag"))
	s.requestStatus(412, "PUT", "/api/schedules/nightly", definition, "If-None-Match", "*")
	s.requestStatus(422, "PUT", "/api/schedules/other", `{"cron":"x","message":"<a/>"}`)
	s.requestStatus(202, "POST", "/api/schedules/nightly/run", "")
	s.requestStatus(200, "POST", "/api/schedules/nightly/pause", "")
	s.requestStatus(200, "POST", "/api/schedules/nightly/resume", "")
	s.requestStatus(404, "POST", "/api/schedules/other/pause", "")
	s.requestStatus(200, "GET", "/api/schedules/nightly", "")
	s.requestStatus(200, "GET", "/api/schedules", "")
	s.requestStatus(200, "GET", "/api/schedules?format=csv", "")
	s.requestStatus(200, "GET", "/api/schedules?format=json", "")
	s.requestStatus(400, "GET", "/api/schedules?format=pdf", "")
	s.requestStatus(200, "GET", "/api/schedules/nightly/preview?count=200", "")
	s.requestStatus(200, "POST", "/api/schedules/other/preview", definition)
	s.requestStatus(200, "DELETE", "/api/schedules/nightly", "")
	s.requestStatus(404, "GET", "/api/schedules/nightly", "")
	s.requestStatus(404, "POST", "/api/schedules/nightly/run", "")
}

func (s *system) checkService() {
	s.requestStatus(200, "GET", "/api/health", "")
	s.requestStatus(200, "HEAD", "/api/health", "")
	s.requestStatus(200, "GET", "/api/checks", "")
	s.requestStatus(200, "GET", "/api/audit", "")
	s.requestStatus(200, "GET", "/api/audit?format=csv", "")
	s.requestStatus(200, "GET", "/api/audit?action=pause&limit=1", "")
	s.requestStatus(400, "GET", "/api/audit?limit=0", "")
	s.requestStatus(200, "GET", "/api/metrics", "")
	s.requestStatus(200, "GET", "/api/dashboard", "")
	s.requestStatus(200, "GET", "/api/dashboard/messages", "")
	s.requestStatus(200, "GET", "/api/history", "")
	s.requestStatus(200, "GET", "/api/history?minutes=1440&lane=0", "")
	s.requestStatus(400, "GET", "/api/history?minutes=0", "")
	_, headers := s.requestStatus(200, "GET", "/api/openapi.yaml", "")
	s.requestStatus(s.unchangedStatus(), "GET", "/api/openapi.yaml", "", "If-None-Match",
		headers.Get("ETag"))
	s.requestStatus(200, "GET", "/api/openapi.json", "")
}
