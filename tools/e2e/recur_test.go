package e2e_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// scheduleState has some fields of the API's answer for a schedule.
type scheduleState struct {
	Name  string
	State struct {
		Filed, Missed, Skipped, Refused int64
		LastDueAt                       time.Time
	}
}

func (s *system) sendJSON(method, path, body string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.weir+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}

	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)

	return resp.StatusCode, string(text)
}

// A schedule makes a message for each second, although the test kills the two handlers in turn. No
// second gets two messages.
func TestRecurring_OnceEachSecondAcrossKills(t *testing.T) {
	s := newSystem(t, 2, "lease: 30s", "lease: 15s")
	definition := `{"cron":"@every 1s","missed":"all",` +
		`"message":"<article path=\"/tick/{{.DueAt}}\" version=\"{{.Run}}\"><title>Tick</title></article>"}`
	if status, answer := s.sendJSON("PUT", "/api/schedules/tick", definition); status !=
		http.StatusCreated {
		t.Fatalf("got %d %s, want 201", status, answer)
	}

	var known int64
	filed := func() int64 { // returns the last known number if no handler answers
		status, answer := s.sendJSON("GET", "/api/schedules/tick", "")
		var now scheduleState
		if status == http.StatusOK {
			if err := json.Unmarshal([]byte(answer), &now); err != nil {
				t.Fatal(err)
			}
		}

		known = max(known, now.State.Filed)

		return known
	}

	for kill := range 3 {
		before := filed()
		s.awaitCondition("the schedule runs", 75*time.Second,
			func() bool { return filed() >= before+4 })
		s.killNext(kill)
	}

	before := filed()
	s.awaitCondition("the schedule runs again", 75*time.Second,
		func() bool { return filed() >= before+4 })
	paused := strings.Replace(definition, `"cron"`, `"paused":true,"cron"`, 1)
	if status, answer := s.sendJSON("PUT", "/api/schedules/tick", paused); status != http.StatusOK {
		t.Fatalf("got %d %s, want 200", status, answer)
	}

	last := getJSON[scheduleState](s, s.weir+"/api/schedules/tick").State
	s.awaitCondition("all is delivered", time.Minute,
		func() bool { return len(s.readTicks()) >= int(last.Filed) })
	ticks := s.readTicks()
	for i := range int(last.Filed) {
		at := last.LastDueAt.Add(-time.Duration(i) * time.Second).Format(time.RFC3339)
		if len(ticks[at]) != 1 {
			t.Errorf("%s has %d messages, want 1", at, len(ticks[at]))
		}
	}

	if len(ticks) != int(last.Filed) || last.Missed+last.Skipped+last.Refused != 0 {
		t.Errorf("%d seconds have a message, want each once: %+v", len(ticks), last)
	}

	s.checkRecord()
	s.logLateness()
}

// logLateness logs how late messages arrived at the CMS, counted from their due times.
func (s *system) logLateness() {
	s.t.Helper()
	var late []time.Duration
	for _, r := range s.readRequests() {
		if due, err := time.Parse(time.RFC3339, strings.TrimPrefix(r.Path, "/tick/")); err == nil {
			late = append(late, r.StartedAt.Sub(due))
		}
	}

	slices.Sort(late)
	s.t.Logf("of %d messages, half came within %s of their due time, and all within %s", len(late),
		late[len(late)/2], late[len(late)-1])
}

// readTicks returns a set for each due time: the ids of the messages with that due time that the
// CMS accepted.
func (s *system) readTicks() map[string]map[string]bool {
	s.t.Helper()
	out := map[string]map[string]bool{}
	for _, r := range s.readRequests() {
		if due, ok := strings.CutPrefix(r.Path, "/tick/"); ok && r.Status/100 == 2 {
			if out[due] == nil {
				out[due] = map[string]bool{}
			}
			out[due][r.ID] = true
		}
	}

	return out
}

func TestRecurring_API(t *testing.T) { inEachMode(t, testRecurringAPI) }

func testRecurringAPI(t *testing.T) {
	s := newSystem(t, 1)
	definition := `{"cron":"30 2 * * *","timeZone":"Europe/Berlin",` +
		`"message":"<article path=\"/nightly\" version=\"{{.Run}}\"><title>At {{.DueAt}}</title></article>"}`
	if status, answer := s.sendJSON("PUT", "/api/schedules/nightly",
		strings.Replace(definition, "{{.Run}}", "x{{.Run}}", 1)); status !=
		http.StatusUnprocessableEntity ||
		!strings.Contains(answer, `"rule":"number"`) {
		t.Errorf(`a message that breaks its contract: %d %s, want 422 and "rule":"number"`,
			status, answer)
	}

	if status, answer := s.sendJSON("PUT", "/api/schedules/nightly", definition); status !=
		http.StatusCreated {
		t.Fatalf("got %d %s, want 201", status, answer)
	}

	if status, answer := s.sendJSON("GET", "/api/schedules/nightly/preview?count=400",
		""); status != http.StatusBadRequest {
		t.Errorf("preview of 400: %d %s, want 400", status, answer)
	}

	if status, answer := s.sendJSON("GET", "/api/schedules/nightly/preview?count=200", ""); status != http.StatusOK ||
		strings.Count(answer, `"dueAt"`) != 200 ||
		!strings.Contains(answer, `T02:30:00","clocksChangeAt"`) {
		t.Errorf(`preview: %d %s, want 200, 200 times "dueAt" and T02:30:00","clocksChangeAt"`,
			status, answer)
	}

	status, answer := s.sendJSON("POST", "/api/schedules/nightly/run", "")
	var run postedMessage
	if err := json.Unmarshal([]byte(answer), &run); err != nil || status != http.StatusAccepted {
		t.Fatalf("run: %d %s, want 202 and no error", status, answer)
	}

	s.awaitStages([]postedMessage{run}, "delivered", time.Minute)

	if status, answer := s.sendJSON("PUT", "/api/schedules/copy",
		`{"cron":"@daily","messageId":"`+run.ID+
			`"}`); status != http.StatusCreated || !strings.Contains(answer, "/nightly") {
		t.Errorf("a copy of a stored message: %d %s, want 201 and \"/nightly\"", status, answer)
	}

	if list := getJSON[struct{ Schedules []scheduleState }](s, s.weir+"/api/schedules"); len(list.Schedules) != 2 {
		t.Errorf("got %+v, want 2 schedules", list)
	}

	if status, _ := s.sendJSON("DELETE", "/api/schedules/copy", ""); status != http.StatusOK {
		t.Errorf("delete: %d, want 200", status)
	}

	if status := s.getStatus(s.weir + "/api/schedules/copy"); status != http.StatusNotFound {
		t.Errorf("after delete: %d, want 404", status)
	}
}
