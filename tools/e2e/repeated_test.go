package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/tools/delay"
	"weir/tools/funchost/host"
)

// heldSystem is a system whose handler reaches storage through a proxy that can hold answers.
type heldSystem struct {
	*system
	proxy *delay.Proxy
}

func newHeldSystem(t *testing.T, flags ...string) *heldSystem {
	t.Helper()
	s := newBareSystem(t)
	s.mode = host.Proxying
	proxy, err := delay.Start(t.Context(), delay.Config{Target: s.storage.ConnectionString()})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = proxy.Close() })
	s.app = s.stageApp("lease: 30s", "lease: 15s", "attempts: 5", "attempts: 1")
	s.startStagedHost([]string{"AzureWebJobsStorage=" +
		proxy.ConnectionString(s.storage.ConnectionString())},
		append([]string{"--instances", "1"}, flags...))
	s.hasKilled.Store(true)

	return &heldSystem{system: s, proxy: proxy}
}

// handler returns the state of the only instance once its handler runs.
func (s *heldSystem) handler() (running instanceStatus) {
	s.t.Helper()
	s.awaitCondition("the handler runs", startLimit, func() bool {
		running = getJSON[hostStatus](s.system, s.weir+"/admin/host/status").Instances[0]
		return running.State == "running"
	})
	return running
}

// callHandler makes a call as a host that proxies does, with the host's id of the invocation. It
// returns status 0 if the handler dies before it answers.
func (s *heldSystem) callHandler(id, method, path string) (status int, answer string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method,
		fmt.Sprintf("http://127.0.0.1:%d%s", s.handler().Port, path), http.NoBody)
	if err != nil {
		s.t.Error(err)
		return 0, ""
	}

	req.Header.Set("X-Azure-Functions-InvocationId", id)
	req.Header.Set("X-Forwarded-Host", "weir.example")
	transport := &http.Transport{DisableKeepAlives: true} // so that net/http sends no request twice
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)

	return resp.StatusCode, string(text)
}

// callTwice makes a call, and kills the handler after storage has executed the change and before
// the handler answers. Then it repeats the call with the same id.
func (s *heldSystem) callTwice(c repeatedCall) {
	s.t.Helper()
	operation, pid, began := c.method+" "+c.path, s.handler().PID, time.Now()
	release := s.proxy.HangAnswers(c.text)
	defer release()
	first := make(chan int, 1)
	go func() {
		status, _ := s.callHandler(operation, c.method, c.path)
		first <- status
	}()

	s.awaitCondition("the change is made, and its answer hangs", time.Minute,
		func() bool { return s.proxy.Hanging() > 0 || len(first) > 0 })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}

	if got := <-first; got != 0 {
		s.t.Errorf("%s: got the answer %d, want none: no change of storage had the text %q",
			operation, got, c.text)
	}

	release()
	s.awaitCondition("another handler runs", startLimit,
		func() bool { return s.handler().PID != pid })
	s.awaitCondition("the handler is ready", startLimit,
		func() bool { return s.getStatus(s.weir+"/api/health") == http.StatusOK })
	s.callAgain(c)
	s.t.Logf("%s: %s", operation, time.Since(began).Round(10*time.Millisecond))
}

// callAgain repeats a call with its id.
func (s *heldSystem) callAgain(c repeatedCall) {
	s.t.Helper()
	operation := c.method + " " + c.path
	if status, answer := s.callHandler(operation, c.method, c.path); !slices.Contains(c.statuses,
		status) {
		s.t.Errorf("%s: got %d %s, want one of %d", operation, status, answer, c.statuses)
	}
}

// read returns the JSON answer of an address of the API.
func (s *heldSystem) read(path string) map[string]any {
	s.t.Helper()
	return getJSON[map[string]any](s.system, s.weir+path)
}

// repeatedCall is an operation without a body. The field text stands in the change of storage after
// which the handler is killed. A check reports whether the operation has had its effect once.
type repeatedCall struct {
	method, path, text string
	statuses           []int
	check              func() bool
}

// The host sends a request without a body again if the handler dies before it answers. For each
// such operation the handler is killed after the change and before the answer. The operation has
// one effect.
func TestRepeatedCalls_ActOnceAcrossAKill(t *testing.T) {
	s := newHeldSystem(t)
	s.setFaults(`{"rejectText":"Helo"}`)
	calls := append(s.prepareCallsOnMessages(), s.prepareCallsOnSchedules()...)

	for _, prepare := range []func() repeatedCall{s.prepareBatch, s.prepareBulkReplay} {
		c := prepare() // must not be over when it is called
		s.callTwice(c)
		s.awaitCondition(c.path+" is cancelled", time.Minute, c.check)
	}

	accepted := s.readTotal("accepted")
	for _, c := range calls {
		s.callTwice(c)
	}

	for _, c := range calls { // a lane moves again when the lease of the killed holder has ended
		s.awaitCondition(c.method+" "+c.path+" has had its effect", time.Minute, c.check)
	}

	// the effects are in the rows by now, and no request to the holder is left
	for _, c := range calls {
		s.callAgain(c)
		if !c.check() {
			t.Errorf("%s %s: its effect is gone, or came twice, after a third call",
				c.method, c.path)
		}
	}

	if got := s.readTotal("accepted") - accepted; got != 1 {
		t.Errorf("got %v new messages, want that of the schedule", got)
	}

	if got := s.readTotal("cancelled"); got < 2 { // those of the batch count, too
		t.Errorf("got %v cancelled messages, want 2 at least", got)
	}

	s.readBalance()
}

func (s *heldSystem) prepareCallsOnMessages() []repeatedCall {
	s.t.Helper()
	var calls []repeatedCall
	for _, c := range []struct{ method, suffix string }{{"DELETE", ""}, {"POST", "/cancel"}} {
		_, _, said := s.requestJSON("POST", s.weir+"/api/messages",
			articleWithTitle("/later", 1, "x"), "Weir-Deliver-After", "1h")
		path := fmt.Sprint("/api/messages/", said["id"])
		calls = append(calls, repeatedCall{c.method, path + c.suffix, "w_cancel_", []int{200, 202},
			func() bool { return s.read(path)["stage"] == "cancelled" }})
	}

	for _, c := range []struct {
		action, text string
		statuses     []int
		has          func(message map[string]any) bool
	}{
		{"replay", "w_replay_", []int{202},
			func(m map[string]any) bool { return m["stage"] == "dead" && m["replays"] == 1.0 }},
		{"discard", "w_discard_", []int{200, 202},
			func(m map[string]any) bool { return m["stage"] == "discarded" }},
		{"erase", "ErasedAt", []int{200},
			func(m map[string]any) bool { return m["erasedAt"] != nil }},
		{"reveal", "reveal", []int{200},
			func(m map[string]any) bool { return m["stage"] == "dead" }},
	} {
		address, _ := s.postBody(articleWithTitle("/"+c.action, 1, "Helo"))
		s.awaitStageAt(address, "dead")
		path := strings.TrimPrefix(address, s.weir)
		calls = append(calls, repeatedCall{"POST", path + "/" + c.action, c.text, c.statuses,
			func() bool { return c.has(s.read(path)) }})
	}

	return calls
}

func (s *heldSystem) prepareCallsOnSchedules() []repeatedCall {
	s.t.Helper()
	const definition = `{"cron":"@yearly","message":"<article path=\"/s\" version=\"{{.Run}}\">` +
		`<title>x</title></article>","paused":%t}`
	var calls []repeatedCall
	for _, c := range []struct {
		method, action, text string
		isPaused             bool
		status               int
		check                func(path string) bool
	}{
		// the messages are counted
		{"POST", "/run", "m_", false, 202, func(string) bool { return true }},
		{"POST", "/pause", "schedules", false, 200,
			func(path string) bool { return s.read(path)["paused"] == true }},
		{"POST", "/resume", "schedules", true, 200,
			func(path string) bool { return s.read(path)["paused"] != true }},
		{"DELETE", "", "schedules", false, 200,
			func(path string) bool { return s.getStatus(s.weir+path) == http.StatusNotFound }},
	} {
		path := "/api/schedules/s" + strings.ReplaceAll(c.method+c.action, "/", "-")
		status, answer := s.sendJSON("PUT", path, fmt.Sprintf(definition, c.isPaused))
		if status != http.StatusCreated {
			s.t.Fatalf("got %d %s, want 201", status, answer)
		}

		calls = append(calls, repeatedCall{c.method, path + c.action, c.text, []int{c.status},
			func() bool { return c.check(path) }})
	}

	return calls
}

func (s *heldSystem) prepareBatch() repeatedCall {
	s.t.Helper()
	var parts strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&parts, `<article path="/b/%d" version="1"><title>x</title></article>`, i)
	}

	address := s.postBatch("?split=/f/article", "application/xml", "<f>"+parts.String()+"</f>")
	path := strings.TrimPrefix(address, s.weir)

	return repeatedCall{"DELETE", path, "cancelAskedAt", []int{200, 202},
		func() bool { return s.read(path)["state"] == "cancelled" }}
}

func (s *heldSystem) prepareBulkReplay() repeatedCall {
	s.t.Helper()
	for n := range 2 {
		address, _ := s.postBody(articleWithTitle(fmt.Sprint("/bulk/", n), 1, "Helo"))
		s.awaitStageAt(address, "dead")
	}

	job := s.startReplay(`{"filter":{},"ratePerMinute":1}`)
	path := "/api/replays/" + job.ID

	return repeatedCall{"DELETE", path, "cancelled", []int{200},
		func() bool { return s.read(path)["state"] == "cancelled" }}
}

func (s *heldSystem) readTotal(counter string) float64 {
	s.t.Helper()
	return s.read("/api/lanes")["totals"].(map[string]any)[counter].(float64)
}

// A request ends the process each time. The host ends after three deaths, so the handler refuses
// the request after two.
func TestCrashGuard_ARequestThatKillsDoesNotEndTheHost(t *testing.T) {
	s := newHeldSystem(t, "--give-up-after", "3")
	_, id := s.postBody(articleWithTitle("/news/1", 1, "Hello"))
	s.awaitStageAt(s.weir+"/api/messages/"+id, "delivered")
	hangs := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "audit")
	}
	release := s.proxy.Hang(hangs)
	defer release()
	answered := make(chan int, 1)
	go func() { answered <- s.getStatus(s.weir + "/api/audit") }()

	for range 2 { // the host sends the request again: it runs in the second process, too
		s.awaitCondition("the request runs", time.Minute,
			func() bool { return s.proxy.Hanging() > 0 })
		pid := s.handler().PID
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}

		s.awaitCondition("another handler runs", startLimit,
			func() bool { return s.proxy.Hanging() == 0 && s.handler().PID != pid })
	}

	if got := <-answered; got != http.StatusInternalServerError {
		t.Errorf("got %d, want 500", got)
	}

	s.awaitCondition("the handler is ready", startLimit,
		func() bool { return s.getStatus(s.weir+"/api/health") == http.StatusOK })

	// A request that runs would hang, as the clean-up of the audit log does.
	if got := s.getStatus(s.weir + "/api/audit"); got != http.StatusInternalServerError {
		t.Errorf("got %d, want 500 at once", got)
	}

	if !strings.Contains(s.output.String(), "the process ended twice while this request ran") {
		t.Error("the log does not name the reason of the refusal")
	}

	address, _ := s.postBody(articleWithTitle("/news/2", 1, "Hello"))
	s.awaitStageAt(address, "delivered")
}
