package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/tools/collector"

	"weir/internal/testkit/settings"
)

// canary is part of each redacted value, and of no other text.
const canary = "qx7canary"

// hasCanary reports whether a text contains canary, in upper or lower case.
func hasCanary(text string) bool { return strings.Contains(strings.ToLower(text), canary) }

// showAroundCanary returns the part of a text near its first canary. The text must contain canary.
func showAroundCanary(text string) string {
	at := strings.Index(strings.ToLower(text), canary)
	return text[max(0, at-200):min(len(text), at+200)]
}

// recordedAnswers is an HTTP transport that records the answers of some hosts.
type recordedAnswers struct {
	mu     sync.Mutex
	byHost map[string][]string // keys: the hosts that startRecording has added
}

// recorded sees all requests of http.DefaultClient.
var recorded = &recordedAnswers{byHost: map[string][]string{}}

func (a *recordedAnswers) startRecording(host string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byHost[host] = []string{}
}

func (a *recordedAnswers) listAnswers(host string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.byHost[host])
}

// RoundTrip implements http.RoundTripper. It records the answer if startRecording has added the
// host.
func (a *recordedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}

	a.mu.Lock()
	_, isRecorded := a.byHost[r.URL.Host]
	a.mu.Unlock()
	if !isRecorded {
		return resp, nil
	}

	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byHost[r.URL.Host] = append(a.byHost[r.URL.Host],
		fmt.Sprintf("%s %s: %d %v %s", r.Method, r.URL.Path, resp.StatusCode, resp.Header, body))

	return resp, err
}

// echo stands in front of the demo CMS, and repeats request bodies in answers. It appends the last
// request body to each answer of the demo CMS. It does not pass on messages of the contract
// "person", but answers them with 422 and the body in several encodings.
type echo struct {
	*httptest.Server
	mu  sync.Mutex
	got []string // bodies of requests
}

func newEcho(t *testing.T, cms string) *echo {
	t.Helper()
	target, err := url.Parse(cms)
	if err != nil {
		t.Fatal(err)
	}

	e := &echo{}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		answer, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}

		answer = append(answer, e.readLastBody()...)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(answer)), int64(len(answer))
		r.Header.Set("Content-Length", fmt.Sprint(len(answer)))

		return nil
	}

	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		e.mu.Lock()
		e.got = append(e.got, string(body))
		e.mu.Unlock()

		if bytes.Contains(body, []byte("article")) || bytes.Contains(body, []byte("<delete")) {
			proxy.ServeHTTP(w, r)
			return
		}

		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintf(w, "%s %s %q %s", body, bytes.ToUpper(body), body,
			url.QueryEscape(string(body)))
	}))

	t.Cleanup(e.Close)

	return e
}

func (e *echo) readLastBody() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.got) == 0 {
		return ""
	}
	return e.got[len(e.got)-1]
}

func (e *echo) joinBodies() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.got, "\n")
}

// newRecordingReceiver starts a receiver of events, and returns its address. The function "events"
// returns the headers and bodies of the events received so far.
func newRecordingReceiver(t *testing.T) (address string, events func() string) {
	t.Helper()
	var mu sync.Mutex
	var got strings.Builder
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&got, "%v %s\n", r.Header, body)
	}))

	t.Cleanup(server.Close)

	return server.URL, func() string {
		mu.Lock()
		defer mu.Unlock()
		return got.String()
	}
}

// peopleRules redacts text, attributes, an attribute with a namespace, and an element with all that
// is in the element. The step of the contract sends the values to the CMS in changed forms, such as
// base64.
const (
	redactTitles = "    root: article\n    redact: [./title]\n    show: [{ name: title, path: ./title }]\n"
	peopleRules  = `
  - name: person
    root: person
    key: ./@id
    redact: [./pan, ./@mail, ./home, "./card/@{urn:c}no"]
    fields:
      - { path: ./pan, rule: "omitempty,max=60" }
      - { path: ./home/street, rule: "omitempty,max=60" }
    show:
      - { name: pan, path: ./pan }
      - { name: mail, path: ./@mail }
      - { name: street, path: ./home/street }
    steps:
      - name: send
        post: "?mail={{ text('./@mail') }}"
        json:
          pan: "{{ text('./pan') }}"
          upper: "{{ upper(text('./pan')) }}"
          part: "{{ key == 'p1' ? text('./pan')[0:12] : nil }}"
          home: "{{ inner('./home') }}"
          card: "{{ base64(text('./card/@{urn:c}no')) }}"
`
)

// newPerson returns a message of the contract "person". Each redacted place contains canary.
func newPerson(id string) string {
	return `<person id="` + id + `" mail='` + canary +
		`@b.example' xmlns:p="urn:c"><name>Ann</name><pan>` + canary +
		`-4711 &amp; <![CDATA[co]]></pan><home no="1"><street floor="` + canary +
		`-floor">` + canary +
		` street</street></home><card p:no="` + canary + `-card" no="2"/></person>`
}

// newRedactingSystem starts a system whose contracts redact values, with an echo as the CMS. It
// sets the log level debug, so that the log has each attempt.
func newRedactingSystem(t *testing.T, otlp, receiver string) (*system, *echo) {
	t.Helper()
	s := newBareSystem(t)
	cms := newEcho(t, s.cms)
	yaml := strings.NewReplacer("min: 1s, max: 5m", "min: 50ms, max: 100ms", "level: info",
		"level: debug", "    root: article\n", redactTitles,
		"contracts:\n  - name: article",
		fmt.Sprintf("notify: [{ url: %q, secret: %s, events: [message.dead], "+
			"allowPrivate: true }]\ncontracts:\n  - name: article", receiver, webhookSecret),
		"root: delete", "root: delete\n    version: ./@version\n    supersede: true\n"+
			"    steps: [{ name: send, post: \"\", body: message, remember: \"{{ 'item-' + key }}\" }]").
		Replace(settings.YAML)

	s.app = s.stageAppWith(yaml + peopleRules)
	s.startStagedHost([]string{"WEIR_CMS_URL=" + cms.URL + "/api/content",
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + otlp,
		"OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_BLRP_SCHEDULE_DELAY=100",
		"OTEL_METRIC_EXPORT_INTERVAL=1000"},
		[]string{"--instances", "1"})

	return s, cms
}

// Redacted values reach Weir by HTTP, in batches and in schedules. The test then calls each
// operation of the API, each page, and the commands that read messages. Only answers to "reveal",
// requests to the CMS, and stored bodies can have a redacted value.
func TestRedact_ReadersSeeNoValue(t *testing.T) {
	c, err := collector.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	receiver, events := newRecordingReceiver(t)
	s, cms := newRedactingSystem(t, c.URL(), receiver)
	recorded.startRecording(strings.TrimPrefix(s.weir, "http://"))

	s.askEveryOperation()
	dead, edited := s.postPeople()
	s.readAllOf(dead, edited)
	output := s.runReadingCommands(dead, edited)

	s.awaitCondition("events and spans arrive", time.Minute, func() bool {
		return strings.Contains(events(), dead) &&
			strings.Contains(fmt.Sprintf("%+v", c.Spans()), dead)
	})

	for _, answer := range recorded.listAnswers(strings.TrimPrefix(s.weir, "http://")) {
		if isReveal := strings.Contains(answer, "/reveal"); hasCanary(answer) && !isReveal {
			t.Errorf("got the answer %.100s … %s, want no redacted value", answer,
				showAroundCanary(answer))
		}
	}

	for name, text := range map[string]string{"commands": output, "events": events(),
		"spans": fmt.Sprintf("%+v", c.Spans()), "log records": fmt.Sprintf("%+v", c.Records())} {
		for line := range strings.Lines(text) {
			if hasCanary(line) {
				t.Errorf("%s: got %s, want no redacted value", name, showAroundCanary(line))
			}
		}
	}

	for line := range strings.Lines(s.output.String()) {
		if hasCanary(line) {
			t.Errorf("got the log line %s, want no redacted value", showAroundCanary(line))
		}
	}

	s.checkOthersHaveTheValues(dead, cms)
}

// postPeople posts valid and invalid messages of the contract "person", also in batches and in
// UTF-16. It returns the ids of two dead messages. The second of them was edited, and died again.
func (s *system) postPeople() (dead, edited string) {
	s.t.Helper()
	ids := make([]string, 2)
	for i := range ids {
		_, headers := s.requestStatus(202, "POST", "/api/messages", newPerson(fmt.Sprint("p", i)))
		ids[i] = headers.Get("Location")[strings.LastIndex(headers.Get("Location"), "/")+1:]
		s.awaitStage(ids[i], "dead")
	}

	answer, _ := s.requestStatus(200, "POST", "/api/messages", newPerson("waited"),
		"Prefer", "wait=30")
	if !strings.Contains(answer, `"dead"`) {
		s.t.Errorf("got %s, want a dead person", answer)
	}

	s.requestStatus(202, "POST", "/api/messages/"+ids[1]+"/edit",
		strings.Replace(newPerson("p1"), "4711", "0815", 1))
	s.awaitCondition("the edited person is dead again", time.Minute, func() bool {
		answer, _ := s.requestStatus(200, "GET", "/api/messages/"+ids[1], "")
		return strings.Contains(answer, `"replays":1`) && strings.Contains(answer, `"dead"`)
	})

	shown, _ := s.requestStatus(200, "GET", "/api/messages/"+ids[0]+"/body", "")
	if strings.Count(shown, "[redacted]") != 4 || !strings.Contains(shown, "<name>Ann</name>") {
		s.t.Errorf("got the body %s, want four marks and the name", shown)
	}

	s.requestStatus(422, "POST", "/api/messages/"+ids[0]+"/edit", shown)

	long := strings.Replace(newPerson("long"), canary+"-4711", strings.Repeat(canary, 20), 1)
	stray := strings.Replace(newPerson("stray"), canary+"-4711", "1<"+canary, 1)
	for _, invalid := range []string{long, stray, canary + newPerson("text")} {
		for _, path := range []string{"/api/messages", "/api/validate"} {
			status := 422
			if path == "/api/validate" {
				status = 200
			} else if invalid != long {
				status = 400
			}

			s.requestStatus(status, "POST", path, "<!-- -->"+invalid, "Content-Type",
				"application/xml")
		}
	}

	batch := s.postBatch("?mode=valid&split=/all/person", "application/xml",
		"<all>"+newPerson("b1")+long+"</all>")
	s.awaitBatch(batch, "the part is dead", time.Minute,
		func(b postedBatch) bool { return b.Stages["dead"] == 1 && len(b.Problems) == 1 })
	broken := s.postBatch("?mode=all&split=/all/person", "application/xml",
		"<all>"+newPerson("b2")+stray+"</all>")
	s.awaitBatch(broken, "the batch is rejected", time.Minute,
		func(b postedBatch) bool { return b.State == "rejected" })
	for _, address := range []string{batch, broken} {
		s.requestStatus(200, "GET", "/api/dashboard"+strings.TrimPrefix(address, s.weir+"/api"), "")
	}

	wide := utf16.Encode([]rune("\uFEFF" + newPerson("wide")))
	var body strings.Builder
	for _, unit := range wide {
		body.Write([]byte{byte(unit), byte(unit >> 8)})
	}

	_, headers := s.requestStatus(202, "POST", "/api/messages", body.String(), "Content-Type",
		"application/xml; charset=utf-16")
	address := strings.TrimPrefix(headers.Get("Location"), s.weir)
	s.awaitStageAt(s.weir+address, "dead")
	s.requestStatus(200, "GET", address+"/body", "")
	s.requestStatus(200, "GET", "/api/dashboard"+strings.TrimPrefix(address, "/api"), "")

	return ids[0], ids[1]
}

// readAllOf reads two dead messages at each address of a message, and reads the lists and pages. It
// also makes schedules with redacted values.
func (s *system) readAllOf(dead, edited string) {
	s.t.Helper()
	for _, id := range []string{dead, edited} {
		for _, path := range []string{"", "?outlook=1", "/attempts", "/body"} {
			s.requestStatus(200, "GET", "/api/messages/"+id+path, "")
		}
		for _, path := range []string{"", "/text"} {
			s.requestStatus(200, "GET", "/api/dashboard/messages/"+id+path, "")
		}
	}

	s.requestStatus(200, "GET", "/api/messages/"+edited+"/body?which=edited", "")
	s.requestStatus(200, "GET", "/api/messages/"+edited+"/difference", "")
	s.requestStatus(200, "GET", "/api/dashboard/messages/"+edited+"/text?which=edited", "")
	page, _ := s.requestStatus(200, "GET", "/api/dashboard/messages/"+dead, "")
	if !strings.Contains(page, "Requests it would make") ||
		!strings.Contains(page, "id=\"reveal\"") ||
		!strings.Contains(page, "[redacted]") {
		s.t.Errorf("got the page %s, want the requests, marks and the form to reveal", page)
	}

	s.requestStatus(201, "PUT", "/api/schedules/person",
		`{"cron":"30 2 1 1 *","message":"`+
			strings.ReplaceAll(newPerson("s-{{.Run}}"), `"`, `\"`)+`"}`)
	s.requestStatus(201, "PUT", "/api/schedules/copied",
		`{"cron":"30 2 1 1 *","messageId":"`+dead+`"}`)

	for _, path := range []string{"/api/schedules", "/api/schedules?format=csv",
		"/api/audit?format=csv", "/api/replays?format=csv",
		"/api/schedules/person", "/api/schedules/copied",
		"/api/dashboard/schedules", "/api/dashboard/schedule?name=person",
		"/api/dashboard/schedule?name=copied",
		"/api/dashboard", "/api/dashboard/messages", "/api/dashboard/errors",
		"/api/dashboard/replays",
		"/api/dashboard/batches", "/api/dashboard/pauses", "/api/dashboard/audit",
		"/api/messages?format=csv", "/api/messages?format=json",
		"/api/messages?stage=dead", "/api/errors", "/api/errors?format=csv", "/api/scheduled",
		"/api/batches",
		"/api/audit", "/api/metrics", "/api/lanes", "/api/remembered?key=p0", "/api/checks"} {
		s.requestStatus(200, "GET", path, "")
	}

	for _, text := range []string{canary, "4711", "0815", "b.example"} {
		for _, query := range []string{"text=" + text, "shown=pan:" + text, "shown=mail:" + text} {
			answer, _ := s.requestStatus(200, "GET", "/api/messages?"+query, "")
			if !strings.Contains(answer, `"messages":[]`) {
				s.t.Errorf("%s: got %s, want no message", query, answer)
			}
		}
	}

	answer, _ := s.requestStatus(200, "GET", "/api/messages?text=%3Cname%3EAnn", "")
	if !strings.Contains(answer, dead) {
		s.t.Errorf("got %s, want the message by a text that is not redacted", answer)
	}
}

// runReadingCommands runs the commands that read messages from Weir or from files. It returns their
// output.
func (s *system) runReadingCommands(dead, edited string) (output string) {
	s.t.Helper()
	dir := s.t.TempDir()
	good, bad := filepath.Join(dir, "good.xml"), filepath.Join(dir, "bad.xml")
	writeFile(s.t, good, newPerson("file"), 0o644)
	writeFile(s.t, bad, strings.Replace(newPerson("file"), canary+"-4711",
		strings.Repeat(canary, 20), 1), 0o644)
	env := []string{"WEIR_URL=" + s.weir}
	for command, code := range map[string]int{"status " + dead: 0, "list": 0,
		"list --format csv": 0, "dead list": 0,
		"dead list --errors": 0, "dead show " + dead: 0, "dead show --json " + edited: 0,
		"dead show --body " + dead:            0,
		"dead show --edited --body " + edited: 0, "audit": 0, "remembered p0": 0,
		"schedules list":        0,
		"schedules next person": 0, "schedules next copied --json": 0, "try " + good: 0,
		"try --json " + good: 0,
		"check " + bad:       1, "try " + bad: 1, "send " + bad: 4, "verify": 0} {
		result := s.runHandler(s.t.Context(), s.app, env, strings.Fields(command)...)
		if result.code != code || result.stdout+result.stderr == "" {
			s.t.Errorf("weir %s: got %+v, want the exit code %d", command, result, code)
		}
		output += result.stdout + result.stderr
	}

	return output
}

// checkOthersHaveTheValues checks that the CMS and the answer to "reveal" have the redacted values.
// Storage must have the values only in bodies. The audit log must have an entry of the reveal.
func (s *system) checkOthersHaveTheValues(dead string, cms *echo) {
	s.t.Helper()
	if sent := cms.joinBodies(); !strings.Contains(sent, anyTitle) ||
		!strings.Contains(sent, canary+"-4711 \\u0026 co") &&
			!strings.Contains(sent, canary+"-4711 & co") {
		s.t.Errorf("the CMS got %s, want the redacted values", sent)
	}

	if body, _ := s.requestStatus(200, "POST", "/api/messages/"+dead+"/reveal", ""); body !=
		newPerson("p0") {
		s.t.Errorf("revealed: got %s, want %s", body, newPerson("p0"))
	}

	answer, _ := s.requestStatus(200, "GET", "/api/audit?action=reveal&subject="+dead, "")
	if !strings.Contains(answer, `"function":"write"`) {
		s.t.Errorf("audit: got %s, want the reading of the body", answer)
	}

	result := s.runHandler(s.t.Context(), s.app, []string{"WEIR_URL=" + s.weir}, "dead", "show",
		"--reveal", dead)
	if result.stdout != newPerson("p0") {
		s.t.Errorf("dead show --reveal: got %+v, want the body", result)
	}

	places := s.findInStorage(canary)
	if len(places) == 0 {
		s.t.Error("got no stored values, want those of bodies, because otherwise the search is wrong")
	}

	for _, place := range places {
		if !strings.HasSuffix(place, " Body") && !strings.HasSuffix(place, " Edited") {
			s.t.Errorf("storage has a redacted value in %s, want bodies alone", place)
		}
	}
}

// The headers of a dead letter have the problems of the message, but no redacted value. The log has
// no redacted value, either.
func TestRedact_DeadLetters(t *testing.T) {
	s := newSystem(t, 1)
	b := useSharedBroker(t)
	q, dead := declareQueue(t, b, ""), declareQueue(t, b, "-dead")
	if err := q.ch.ExchangeDeclare(t.Name(), "fanout", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}

	if err := q.ch.QueueBind(dead.name, "", t.Name(), false, nil); err != nil {
		t.Fatal(err)
	}

	app := s.stageConsumer(b, "    deadLetterExchange: "+t.Name()+"\n", q)
	settings := filepath.Join(app, "weir.yaml")
	writeFile(t, settings, strings.Replace(readFile(t, settings), "    root: article\n",
		redactTitles, 1), 0o644)
	s.startConsumer(app)

	for name, title := range map[string]string{"long": strings.Repeat(canary, 30),
		"stray": "1<" + canary} {
		body := titledArticle("/a", title)
		q.publish(amqp.Publishing{ContentType: "application/xml", MessageId: name,
			Body: []byte(body)})
		d := dead.get(s)
		if hasCanary(fmt.Sprint(d.Headers)) || string(d.Body) != body ||
			d.Headers["x-weir-problems"] == nil {
			t.Errorf("%s: got %q with %v, want the delivery with problems that do not repeat the value", name, d.Body,
				d.Headers)
		}
	}

	for line := range strings.Lines(s.output.String()) {
		if hasCanary(line) {
			t.Errorf("got the log line %s, want no redacted value", showAroundCanary(line))
		}
	}
}
