package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/openapi"
	"weir/internal/openapi/openapitest"
	"weir/internal/wire"
)

// fakeServer is an HTTP server in place of Weir; a test sets its answers. It checks that a request
// has the function key only in the header. It also checks each request and each answer of mux
// against openapi.yaml.
type fakeServer struct {
	t        *testing.T
	document *openapitest.Document
	server   *httptest.Server
	mux      *http.ServeMux

	mu       sync.Mutex
	received []string // method, address and body of each request
	// If spoil is set, it is called before mux. If it returns true, it has answered the request in
	// place of mux.
	spoil func(w http.ResponseWriter, r *http.Request) bool
}

// description returns the parsed openapi.yaml, which all tests share.
var description = sync.OnceValues(func() (*openapitest.Document,
	error) {
	return openapitest.Read(openapi.Document)
})

func newFakeServer(t *testing.T) *fakeServer {
	t.Helper()
	document, err := description()
	if err != nil {
		t.Fatal(err)
	}

	f := &fakeServer{t: t, document: document, mux: http.NewServeMux()}
	f.server = httptest.NewServer(f)
	t.Cleanup(f.server.Close)

	return f
}

// ServeHTTP implements http.Handler.
func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sent, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("X-Functions-Key") != "s3cret" ||
		strings.Contains(r.URL.String(), "s3cret") {
		f.t.Errorf("got %s with %v (%v), want the key in X-Functions-Key only", r.URL,
			r.Header, err)
	}

	f.mu.Lock()
	f.received = append(f.received, r.Method+" "+r.URL.String()+" "+string(sent))
	spoil := f.spoil
	f.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(sent))
	if spoil != nil && spoil(w, r) {
		return
	}

	rec := httptest.NewRecorder()
	f.mux.ServeHTTP(rec, r)

	for _, text := range f.document.Check(openapitest.Exchange{Request: r, Sent: sent,
		Status: rec.Code, Header: rec.Header(), Received: rec.Body.Bytes()}) {
		f.t.Errorf("%s %s: got a difference from openapi.yaml, want none: %s", r.Method,
			r.URL.Path, text)
	}

	for name, values := range rec.Header() {
		w.Header()[name] = values
	}

	w.WriteHeader(rec.Code)
	w.Write(rec.Body.Bytes())
}

// answerJSON registers answers for a pattern of the mux. Each text answers one request, and the
// last text also answers all later requests. If the status is 400 or more, the answer is a problem
// document with the text as its detail.
func (f *fakeServer) answerJSON(pattern string, status int, texts ...string) {
	times := 0
	f.mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		text := texts[min(times, len(texts)-1)]
		times++
		f.mu.Unlock()
		kind := "application/json"
		if status >= 400 {
			kind = "application/problem+json"
			text = fmt.Sprintf(`{"type":"about:blank","title":"x","status":%d,"detail":%q}`,
				status, text)
		}

		w.Header().Set("Content-Type", kind)
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Location", f.server.URL+"/api/x")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(status)
		w.Write([]byte(text))
	})
}

func (f *fakeServer) receivedRequests() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.received, "\n")
}

// newConsole returns a console whose environment has only the server's address and function key.
func (f *fakeServer) newConsole() (s *console, stdout, stderr *bytes.Buffer) {
	s, stdout, stderr = newTestConsole(func(name string) string {
		return map[string]string{"WEIR_URL": f.server.URL, "WEIR_CODE": "s3cret"}[name]
	})
	s.stdin, s.gracePeriod = strings.NewReader(""), 10*time.Minute
	s.firstRetryWait, s.pollInterval = time.Millisecond, time.Millisecond
	return s, stdout, stderr
}

type commandResult struct {
	code        int    // exit code
	out, errors string // stdout and stderr
}

// runCommand runs a command to its end, and checks that the output does not have the function key.
func (f *fakeServer) runCommand(args ...string) commandResult {
	f.t.Helper()
	s, stdout, stderr := f.newConsole()
	d := commandResult{s.runCommand(f.t.Context(), args), stdout.String(), stderr.String()}
	if strings.Contains(d.out+d.errors, "s3cret") {
		f.t.Errorf("got %+v, want no function key in the output", d)
	}
	return d
}

// expectEnd checks the exit code and both streams: stdout must contain the parameter "out", and
// stderr must contain the parameter "errors". If one of these parameters is empty, its stream must
// be empty.
func (d commandResult) expectEnd(t *testing.T, code int, out, errors string) {
	t.Helper()
	isExpected := func(got, want string) bool {
		return strings.Contains(got, want) &&
			(want != "" || got == "")
	}
	if d.code != code || !isExpected(d.out, out) || !isExpected(d.errors, errors) {
		t.Errorf("got exit code %d, want %d\ngot stdout %q, want %q\ngot stderr %q, want %q",
			d.code, code, d.out, out, d.errors,
			errors)
	}
}

func (d commandResult) parseLines(t *testing.T) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(d.out) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Errorf("got the line %q (%v), want JSON", line, err)
		}
		all = append(all, v)
	}

	return all
}

// dead1 is the JSON of a dead message, without the last brace.
const dead1 = `{"id":"AQ1","stage":"dead","contract":"article","key":"/a\u001b[2J","lane":1,"sequence":7,` +
	`"version":"3","attempts":5,
	"acceptedAt":"2026-01-08T12:00:00Z","finishedAt":"2026-01-08T12:01:00Z","lastError":"the index\nis locked","cmsStatus":500`

// story1 is the complete JSON of the message of dead1, with two attempts.
const story1 = dead1 + `,"attemptLog":[{"number":1,"at":"2026-01-08T12:00:01Z","durationMs":120,"outcome":"retry",` +
	`"status":500,"reason":"locked","answer":"no\u0007\nnever"},
	{"number":5,"at":"2026-01-08T12:00:59Z","durationMs":9,"outcome":"rejected"}]}`

func TestAPICommand_Usage(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	for name, c := range map[string]struct {
		args string
		says string
	}{
		"SendNothing":      {"send", "give files or directories"},
		"SendDirectory":    {"send .", ". has no file *.xml"},
		"SendMissing":      {"send /none/a.xml /none/b.xml", "/none/b.xml: no such file"},
		"SendNoMatch":      {"send /none/*.xml", "/none/*.xml matches no file"},
		"SendTwiceStdin":   {"send - -", "- may stand once"},
		"SendParallel":     {"send -p 0 -", "--parallel is 0"},
		"StatusNoID":       {"status", "give a message's id"},
		"StatusWait":       {"status x --wait=soon", "invalid argument"},
		"StatusWaitNone":   {"status x --wait=0s", "more than nothing"},
		"TailLines":        {"tail -n 101", "0 to 100"},
		"TailInterval":     {"tail --interval 1ms", "100ms or more"},
		"Dead":             {"dead", "list, show or replay"},
		"DeadUnknown":      {"dead bury x", "unknown command"},
		"DeadFrom":         {"dead list --from yesterday", "how long ago"},
		"DeadLimit":        {"dead list --limit 0", "1 or more"},
		"DeadErrorsKey":    {"dead list --errors --key x", "[errors key]"},
		"ReplayWhich":      {"dead replay", "say which"},
		"ReplayBoth":       {"dead replay AQ1 --lane 2", "--lane does not go with IDs"},
		"ReplayAllAndSome": {"dead replay --all --key x", "--all does not go with --key"},
		"ReplayRate":       {"dead replay --all --rate 0", "1 to 6000"},
		"ReplayStop":       {"dead replay --all --stop-at-error-rate 2", "0 to 1"},
		"ReplayWithTwo":    {"dead replay a b --with x", "one ID"},
		"ReplayWithNone":   {"dead replay a --with /none/x", "no such file"},
		"ReplayNote":       {"dead replay a --note x", "goes with --with"},
		"ReplayLane":       {"dead replay --lane -1", "0 or more"},
		"PauseWhat":        {"pause --reason x", "give --all, --lane N or --key K"},
		"PauseTwo":         {"pause --all --lane 1 --reason x", "none of the others can be"},
		"PauseNoReason":    {"pause --all", "--reason is needed"},
		"PauseForUntil": {"pause --all --reason x --for 1m --until x",
			"none of the others can be"},
		"PauseFor":     {"pause --all --reason x --for -1m", "more than nothing"},
		"FlagMisspelt": {"list --lnae 3", "unknown flag: --lnae; did you mean --lane?"},
		"FlagUnknown":  {"list --colour", "unknown flag: --colour\n"},
		"PauseForNoUnit": {"pause --all --reason x --for 2",
			"give a number with its unit, like 90s, 30m or 2h"},
		"StatusWaitNoUnit": {"status AQ1 --wait=2",
			"give a number with its unit, like 90s, 30m or 2h"},
		"PauseUntil":    {"pause --all --reason x --until noon", "--until"},
		"PauseAllFalse": {"pause --all=false --reason x", "give --all"},
		"EmptyKey":      {"resume --key=", "--key is empty"},
		"DeadEmptyKey":  {"dead list --key=", "--key is empty"},
		"TailEmptyKey":  {"tail --key=", "--key is empty"},
		"ResumeLane":    {"resume --lane -1", "give --all"},
		"BadURL":        {"pauses --url weir.example", "must be like"},
		"NoScheme":      {"pauses --url 127.0.0.1:7071", "must be like"},
		"BadKey":        {"pauses --code=ä", "that no key has"},
		"SendGiveUp":    {"send --give-up -1s -", "0s or more"},
		"Help":          {"dead list x", "See 'weir dead list --help'."},
		"KeyInURL":      {"pauses --url http://127.0.0.1/?code=s3cret", "no key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.runCommand(strings.Fields(c.args)...).expectEnd(t, exitUsage, "", c.says)
		})
	}

	t.Run("NoAddress", func(t *testing.T) {
		t.Parallel()
		s, stdout, stderr := newTestConsole(func(string) string { return "" })
		commandResult{s.runCommand(t.Context(), []string{"pauses"}), stdout.String(), stderr.String()}.expectEnd(t,
			exitUsage, "", "--url or WEIR_URL")
	})

	t.Cleanup(func() {
		if requests := f.receivedRequests(); requests != "" {
			t.Errorf("got the requests %s, want none", requests)
		}
	})
}

func TestAPICommand_Help(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	for _, command := range []string{"send", "status", "tail", "dead", "dead list", "dead show",
		"dead replay", "cancel", "pause", "resume", "pauses"} {
		if d := f.runCommand(strings.Fields(command + " --help")...); d.code != exitOK ||
			!strings.Contains(d.out, exitHelp) || !strings.Contains(d.out, "WEIR_URL") {
			t.Errorf("%s: got %+v, want the exit codes and WEIR_URL in the help", command, d)
		}
	}

	f.runCommand("send", "--help").expectEnd(t, exitOK, "--wait duration[=forever] ", "")
}

func TestAPICommand_NotReached(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.server.Close()

	for _, args := range []string{"status x", "tail", "dead list", "dead list --errors",
		"dead show x", "dead replay x",
		"dead replay --all", "pause --all --reason x", "resume --all", "pauses",
		"send --give-up 0s api_command.go"} {
		if d := f.runCommand(strings.Fields(args)...); d.code != exitUnavailable ||
			!strings.Contains(d.errors, "not reached") {
			t.Errorf("%s: got %+v, want exit code %d and an error that Weir was not reached", args,
				d, exitUnavailable)
		}
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("GET /api/messages/AQ1", 200, story1)
	f.answerJSON("GET /api/messages/none", 404, "there is no such message")
	waiting := `{"id":"AQ2","stage":"retrying","contract":"article","key":"","lane":0,"sequence":1,"attempts":1,` +
		`"acceptedAt":"2026-01-08T12:00:00Z","nextAttemptAt":"2026-01-08T12:05:00Z","position":2,"waitsFor":"AQ1"}`
	final := `{"id":"AQ2","stage":"delivered","contract":"article","key":"","lane":0,"sequence":1,"attempts":2,` +
		`"acceptedAt":"2026-01-08T12:00:00Z","finishedAt":"2026-01-08T12:06:00Z","deliveredAt":"2026-01-08T12:06:00Z"}`
	f.answerJSON("GET /api/messages/AQ2", 200, waiting, waiting, final)

	braked := `{"id":"AQ10","stage":"retrying","contract":"article","key":"","lane":0,"sequence":1,"attempts":1,` +
		`"acceptedAt":"2026-01-08T12:00:00Z","position":1,` +
		`"waitsFor":"the CMS to take a message of the contract article: it rejects it"}`
	f.answerJSON("GET /api/messages/AQ10", 200, braked)
	f.runCommand("status", "AQ10").expectEnd(t, exitOK,
		"\nIt waits for: the CMS to take a message of the contract "+
			"article: it rejects it\n", "")

	d := f.runCommand("status", "AQ1")
	d.expectEnd(t, exitOK, "Message AQ1 is dead.\n2026-01-08 12:00:00Z  accepted as article for /a\ufffd[2J, version "+
		"3, number 7 of lane 1\n2026-01-08 12:00:01Z  attempt 1, 120ms: retry, 500: locked\n", "")
	d.expectEnd(t, exitOK, "… and 3 attempts more\n2026-01-08 12:00:59Z  attempt 5, 9ms: rejected\n2026-01-08 "+
		"12:01:00Z  dead: the index is locked\n", "")
	f.answerJSON("GET /api/messages/AQ9", 200, strings.Replace(story1, `"outcome":"rejected"`,
		`"outcome":"rejected","steps":[{"name":"find","durationMs":3,"status":409,"reason":"stale"},{"name":"find",`+
			`"durationMs":2}]`, 1))
	f.runCommand("status", "AQ9").expectEnd(t, exitOK,
		"attempt 5, 9ms: rejected\n                      step find, "+"3ms: 409, "+
			"then again from the first step: stale\n                      step find, 2ms: no answer\n2026-01-08 "+
			"12:01:00Z  dead", "")

	f.answerJSON("GET /api/messages/AQ3", 200, strings.TrimSuffix(story1,
		"}")+`,"edited":{"at":"2026-01-08T12:00:58Z","note":"title"}}`)
	f.runCommand("status", "AQ3").expectEnd(t, exitOK,
		"… and 3 attempts more\n2026-01-08 12:00:58Z  corrected: "+
			"title\n2026-01-08 12:00:59Z  attempt 5", "")
	f.answerJSON("GET /api/messages/AQ4", 200, strings.TrimSuffix(story1,
		"}")+`,"replays":1,"replayAskedAt":"2026-01-08T12:03:00Z","replayRefused":"a later one"}`)
	f.runCommand("status", "AQ4").expectEnd(t, exitOK,
		"12:01:00Z  dead: the index is locked\n2026-01-08 12:03:00Z  "+
			"replay requested\nReplayed: 1 time.\nThe last replay was refused: a later one\n", "")
	f.answerJSON("GET /api/messages/AQ6", 200, strings.TrimSuffix(story1,
		"}")+`,"replays":1,"replayAskedAt":"2026-01-08T12:00:30Z","replayForced":true}`)
	f.runCommand("status", "AQ6").expectEnd(t, exitOK,
		"… and 3 attempts more\n2026-01-08 12:00:30Z  replayed, by "+
			"force\n2026-01-08 12:00:59Z  attempt 5", "")
	f.answerJSON("GET /api/messages/AQ7", 200,
		strings.NewReplacer(`"stage":"dead"`, `"stage":"retrying"`,
			`"finishedAt":`, `"nextAttemptAt":`).Replace(strings.TrimSuffix(story1,
			"}"))+`,"replays":1,"replayAskedAt":"2026-01-08T12:00:30Z"}`)

	f.runCommand("status", "AQ7").expectEnd(t, exitOK,
		"12:00:30Z  replayed\n2026-01-08 12:00:59Z  attempt 5, 9ms: "+
			"rejected\n2026-01-08 12:01:00Z  next attempt\nReplayed: 1 time.\n", "")
	f.answerJSON("GET /api/messages/AQ8", 200, strings.TrimSuffix(story1,
		"}")+`,"replays":1,"replayAskedAt":"2026-01-08T12:00:57Z","replayForced":true,`+
		`"edited":{"at":"2026-01-08T12:00:58Z","note":"title"}}`)
	f.runCommand("status", "AQ8").expectEnd(t, exitOK,
		"more\n2026-01-08 12:00:58Z  corrected, by force: "+
			"title\n2026-01-08 12:00:59Z  attempt 5", "")
	f.answerJSON("GET /api/messages/AQ11", 200, strings.TrimSuffix(story1,
		"}")+`,"uncounted":{"attempts":5,"status":503}}`)
	f.runCommand("status", "AQ11").expectEnd(t, exitOK,
		"number 7 of lane 1\n                      meanwhile the CMS "+
			"answered 503: 5 attempts of its lane did not count\n2026-01-08 12:00:01Z  attempt 1",
		"")

	f.runCommand("status", "AQ1", "--wait").expectEnd(t, exitFailed, "is dead",
		"the message is dead")
	f.runCommand("status", "none").expectEnd(t, exitNotFound, "",
		"404 Not Found: there is no such message")
	f.runCommand("status", "AQ2").expectEnd(t, exitOK,
		"next attempt\nIt waits for: AQ1\nIt is number 2 in line for "+"its key.\n", "")

	if lines := f.runCommand("status", "AQ2", "--wait", "--json").parseLines(t); len(lines) != 1 ||
		lines[0]["stage"] != "delivered" {
		t.Errorf("got %v, want one line with the stage delivered", lines)
	}
}

func TestStatus_TheTimeIsOver(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("GET /api/messages/AQ2", 200,
		`{"id":"AQ2","stage":"queued","contract":"a","key":"","lane":0,`+
			`"sequence":1,"attempts":0,"acceptedAt":"2026-01-08T12:00:00Z"}`)
	f.runCommand("status", "AQ2", "--wait=1ms").expectEnd(t, exitFailed, "is queued",
		"the message is still queued after 1ms")
}

func TestPauses(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	lane := `{"scope":"lane","lane":2,"reason":"the CMS moves","by":"ada@example.org",` +
		`"since":"2026-01-08T12:00:00Z"}`
	key := `{"scope":"key","lane":1,"key":"/a","reason":"r","since":"2026-01-08T12:00:00Z",` +
		`"until":"2026-01-09T12:00:00Z"}`
	f.answerJSON("POST /api/pause", 200, `{"pauses":[`+lane+`,`+key+`]}`)
	f.answerJSON("POST /api/resume", 200, `{"pauses":[]}`)
	f.answerJSON("GET /api/pauses", 200, `{"pauses":[`+key+`],"calendar":{"closed":true,`+
		`"until":"2026-01-10T06:00:00Z","reason":"night freeze"}}`)
	f.runCommand("pause", "--lane", "2", "--reason", "the CMS moves", "--for", "90m").expectEnd(t,
		exitOK,
		"lane 2           ada@example.org  2026-01-08 12:00:00Z  until resumed         the CMS moves\n"+
			"key /a (lane 1)  unknown", "")

	f.runCommand("pause", "--key", "/a", "--reason", "r", "--until", "2026-01-31T08:00:00+01:00", "--json").expectEnd(t,
		exitOK, lane, "")
	f.runCommand("resume", "--all").expectEnd(t, exitOK, "Nothing is paused.\n", "")
	failedAt := time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)
	lanes, err := json.Marshal(wire.LaneList{Lanes: []wire.Lane{{Number: 0, Pauses: []wire.Pause{}},
		{Number: 3, Pauses: []wire.Pause{}, PausedBy: "cms",
			PausedUntil: failedAt.Add(5 * time.Minute),
			LastErrorAt: failedAt, PauseReason: "503 of the CMS"}}})
	if err != nil {
		t.Fatal(err)
	}

	f.answerJSON("GET /api/lanes", 200, string(lanes))
	f.runCommand("pauses").expectEnd(t, exitOK,
		"lane 3           the CMS  2026-01-08 12:00:00Z  2026-01-08 12:05:00Z  503 of the CMS\n"+
			"The calendar is closed until 2026-01-10 06:00:00Z: night freeze.\n", "")
	f.runCommand("pauses", "--json").expectEnd(t, exitOK, key, "")
	want := `POST /api/pause {"lane":2,"reason":"the CMS moves","for":"1h30m0s"}
POST /api/pause {"key":"/a","reason":"r","until":"2026-01-31T08:00:00+01:00"}
POST /api/resume {"all":true}
GET /api/pauses 
GET /api/lanes 
GET /api/pauses `
	if got := f.receivedRequests(); got != want {
		t.Errorf("got the requests\n%s\nwant\n%s", got, want)
	}
}
