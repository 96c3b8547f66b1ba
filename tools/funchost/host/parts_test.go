package host

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"
)

func TestQueuePayload_IsTheHostsOwn(t *testing.T) {
	t.Parallel()
	const want = `{"Data":{"myQueueItem":"\"{\\\"jobId\\\":42,\\\"who\\\":\\\"Ann\\\",` +
		`\\\"opts\\\":{\\\"dry\\\":true},\\\"tags\\\":[\\\"a\\\",\\\"b\\\"]}\""},"Metadata":{"DequeueCount":"1",` +
		`"ExpirationTime":"2026-01-15T09:30:00+00:00","Id":"\"9f2c1c0e-5a5e-4a5e-8d3a-0c1b2a3d4e5f\"",` +
		`"InsertionTime":"2026-01-08T09:30:00+00:00","NextVisibleTime":"2026-01-08T09:40:01+00:00",` +
		`"PopReceipt":"\"AgAAAAMAAAAAAAAA6mz1Yxyz2wE=\"","sys":{"MethodName":"ProcessJob",` +
		`"UtcNow":"2026-01-08T09:30:01.2345678Z","RandGuid":"-"},"jobId":"\"42\"","who":"\"Ann\"","opts":{"dry":true}}}`

	inserted := time.Date(2026, 1, 8, 9, 30, 0, 999, time.UTC)
	expires, visible := inserted.AddDate(0, 0, 7), inserted.Add(10*time.Minute+time.Second)
	got := queuePayload(&function{name: "ProcessJob",
		trigger: functionBinding{Name: "myQueueItem"}}, queueMessage{
		id: "9f2c1c0e-5a5e-4a5e-8d3a-0c1b2a3d4e5f", popReceipt: "AgAAAAMAAAAAAAAA6mz1Yxyz2wE=",
		dequeueCount: 1,
		text:         `{"jobId":42,"who":"Ann","opts":{"dry":true},"tags":["a","b"]}`,
		inserted:     &inserted, expires: &expires, nextVisible: &visible,
	}, time.Date(2026, 1, 8, 9, 30, 1, 234567800, time.UTC))

	got = regexp.MustCompile(`"RandGuid":"[0-9a-f-]{36}"`).ReplaceAll(got, []byte(`"RandGuid":"-"`))
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTimerPayload_IsTheHostsOwn(t *testing.T) {
	t.Parallel()
	const want = `{"Data":{"tick":{"Schedule":{"AdjustForDST":true},` +
		`"ScheduleStatus":{"Last":"2026-01-08T09:25:00.0012345+00:00","Next":"2026-01-08T09:30:00+00:00",` +
		`"LastUpdated":"2026-01-08T09:25:00.0012345+00:00"},"IsPastDue":false}},` +
		`"Metadata":{"sys":{"MethodName":"Sweep",`

	last := time.Date(2026, 1, 8, 9, 25, 0, 1234500, time.UTC)
	now := time.Date(2026, 1, 8, 9, 30, 0, 0, time.UTC)
	got := timerPayload(&function{name: "Sweep", trigger: functionBinding{Name: "tick"}}, true,
		&scheduleStatus{Last: last, Next: now, LastUpdated: last}, false, now)
	if !bytes.HasPrefix(got, []byte(want)) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestEncodeString_EscapesLikeDotNet(t *testing.T) {
	t.Parallel()
	if got, want := string(encodeString("ä<&>/\"\\\n\u0085\u2028")), `"ä<&>/\"\\\n\u0085\u2028"`; got != want {
		t.Errorf("encodeString = %s; want %s", got, want)
	}
}

func TestPollBackoff_NextPause(t *testing.T) {
	t.Parallel()
	b := pollBackoff{maxPause: 2 * time.Second}
	for _, want := range []int{100, 200, 300, 500, 900, 1700, 2000, 2000} {
		if got := b.nextPause(0.5); got != time.Duration(want)*time.Millisecond {
			t.Errorf("nextPause = %v; want %d ms", got, want)
		}
	}

	b.resetPause()

	if b.nextPause(0) != 100*time.Millisecond || b.nextPause(0) != 180*time.Millisecond ||
		b.nextPause(1) != 340*time.Millisecond {
		t.Error("the pauses after a reset are not 100, 180 and 340 ms, with factors of 0.8 and 1.2")
	}
}

func TestInstance_WakeListenersEndsTheWaitForAPoll(t *testing.T) {
	t.Parallel()
	newListener := func(queue string) *queueListener {
		return &queueListener{
			function: &function{trigger: functionBinding{queue: queue, connection: "c"}},
			ctx:      t.Context(),
			woken:    make(chan struct{}, 1), backoff: pollBackoff{maxPause: time.Minute, tries: 9},
		}
	}

	meant, other := newListener("q-poison"), newListener("q")
	i := &instance{listeners: []*queueListener{other, meant}}
	i.wakeListeners("q-poison", "c")
	i.wakeListeners("q-poison", "c") // must not block
	meant.awaitNextPoll(time.Hour)
	if meant.backoff.tries != 0 {
		t.Errorf("%d tries after the wake-up, want the pauses to begin anew", meant.backoff.tries)
	}

	if len(other.woken) != 0 {
		t.Error("another queue's listener was woken, want only that of q-poison")
	}
}

func TestParseSpan(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"00:05:00":     5 * time.Minute,
		"1.02:03:04.5": 26*time.Hour + 3*time.Minute + 4500*time.Millisecond, "-1": -1,
	} {
		if got, err := parseSpan(text); err != nil || got != want {
			t.Errorf("parseSpan(%q) = %v, %v; want %v", text, got, err, want)
		}
	}

	for _, text := range []string{"", "5", "00:60:00", "24:00:00", "00:00:61", "a:b:c",
		"-01:00:00"} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("parseSpan(%q) = %v; want an error", text, got)
		}
	}
}

func TestParseSchedule(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 8, 9, 30, 30, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"0 */5 * * * *": time.Date(2026, 1, 8, 9, 35, 0, 0, time.UTC),
		"15 * * * * *":  time.Date(2026, 1, 8, 9, 31, 15, 0, time.UTC),
		"*/5 * * * *":   time.Date(2026, 1, 8, 9, 35, 0, 0, time.UTC),
		"00:10:00":      time.Date(2026, 1, 8, 9, 40, 30, 0, time.UTC),
	} {
		s, err := parseSchedule(text)
		if err != nil || !s.Next(from).Equal(want) {
			t.Errorf("%q: next %v, %v; want %v", text, s, err, want)
		}
	}

	for text, want := range map[string]bool{"0 * * * * *": true, "*/30 * * * * *": false,
		"00:00:30": false} {
		s, _ := parseSchedule(text)
		if got := s.isMonitored(&function{}, from); got != want {
			t.Errorf("%q is monitored: %t; want %t", text, got, want)
		}
	}
}

func TestQueueOptions(t *testing.T) {
	t.Parallel()
	read := func(tree map[string]any, env ...string) queueOptions {
		h := &hostFile{tree: tree}
		o := h.readQueueOptions(newEnviron(env))
		if len(h.problems) > 0 {
			t.Errorf("got %v, want 0 problems", h.problems)
		}
		return o
	}

	got := read(map[string]any{}, "WEBSITE_SKU=Dynamic")
	if want := (queueOptions{batchSize: 16, newBatchThreshold: 8, maxDequeueCount: 5,
		maxPollingInterval: time.Minute, base64: true}); got != want {
		t.Errorf("defaults: %+v; want %+v", got, want)
	}

	development := read(map[string]any{}, "AZURE_FUNCTIONS_ENVIRONMENT=Development")
	if got := development.maxPollingInterval; got != 2*time.Second {
		t.Errorf("in development maxPollingInterval is %v; want 2 s", got)
	}

	for text, want := range map[string][2]time.Duration{ // in production, in development
		"00:01:00": {time.Minute, 2 * time.Second},
		"00:00:30": {30 * time.Second, 30 * time.Second},
	} {
		set := map[string]any{
			"Extensions": map[string]any{"queues": map[string]any{"maxPollingInterval": text}}}
		got := [2]time.Duration{read(set).maxPollingInterval,
			read(set, "AZURE_FUNCTIONS_ENVIRONMENT=Development").maxPollingInterval}
		if got != want {
			t.Errorf("set to %s: %v; want %v", text, got, want)
		}
	}
}

func TestApp_StderrLevel(t *testing.T) {
	t.Parallel()

	// with useStdErrorStreamForErrorsOnly true, and with false
	for line, want := range map[string][2]logLevel{
		"a Warning":      {levelWarning, levelWarning},
		"it failed":      {levelError, levelError},
		"nothing at all": {levelError, levelInformation},
	} {
		got := [2]logLevel{(&app{stderrIsErrors: true}).stderrLevel(line),
			(&app{}).stderrLevel(line)}
		if got != want {
			t.Errorf("%q: %v; want %v", line, got, want)
		}
	}
}

// A new handler process listens on the port of the ended process. A call for the ended process must
// not reach the new one.
func TestHandlerClient_ReachesNoLaterProcess(t *testing.T) {
	t.Parallel()
	next := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer next.Close()
	p := &handlerProcess{ended: make(chan struct{})}
	client := newHandlerClient(p, true)
	defer client.CloseIdleConnections()
	call := func() error {
		res, err := client.Get(next.URL)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
	if err := call(); err != nil {
		t.Errorf("a call while the process runs: %v, want no error", err)
	}

	client.CloseIdleConnections()
	close(p.ended)
	if err := call(); !errors.Is(err, errEnded) {
		t.Errorf("a call after the end of the process: %v, want %v", err, errEnded)
	}

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	_ = closed.Close()
	if _, err := p.dialHandler(t.Context(), "tcp", closed.Addr().String()); err == nil {
		t.Error("a connection to a port without listener: no error, want one")
	}
}
