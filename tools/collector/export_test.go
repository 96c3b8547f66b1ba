package collector_test

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/telemetry"
	"weir/internal/weir"
	"weir/tools/collector"
)

// The tests of this file are not parallel, because the OpenTelemetry SDK reads its settings from
// the process's environment.

// upstream is the traceparent header of an upstream's request. The trace is marked as sampled.
const upstream = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func newCollector(t *testing.T) *collector.Collector {
	t.Helper()
	c, err := collector.Start()
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(c.Close)
	return c
}

// logLines collects the lines of a log. The lock is necessary, because the SDK's goroutines can
// write while the test reads, even after Export.Close has returned. The SDK has one error handler
// per process, so an error of one test can also reach the log of the next test.
type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// openExport starts an export with the environment variables in "env", where names and values
// alternate. The returned function sends the remaining telemetry and ends the export.
func openExport(t *testing.T, local slog.Handler, env ...string) (*telemetry.Export, func()) {
	t.Helper()
	for i := 0; i < len(env); i += 2 {
		t.Setenv(env[i], env[i+1])
	}

	e := telemetry.Open(t.Context(), os.Getenv, telemetry.Build{Version: "v1"}, local)
	closed := false
	end := func() {
		if !closed {
			closed = true
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			e.Close(ctx)
		}
	}

	t.Cleanup(end)

	return e, end
}

// postReceived sends a request through e.Receive, and returns the traceparent that the wrapped
// handler gets.
func postReceived(e *telemetry.Export, traceparent string) (kept string) {
	kept, _ = postWithState(e, traceparent, "")
	return kept
}

func postWithState(e *telemetry.Export, traceparent, tracestate string) (kept, state string) {
	h := e.Receive("/api/messages", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept, state = r.Header.Get("Traceparent"), r.Header.Get("Tracestate")
		w.Header().Set("Location", "http://weir.example/api/messages/"+newMessage("").ID.String())
		w.WriteHeader(http.StatusAccepted)
	}))

	r := httptest.NewRequest(http.MethodPost, "/api/messages", strings.NewReader("<a/>"))
	if traceparent != "" {
		r.Header.Set("Traceparent", traceparent)
	}

	if tracestate != "" {
		r.Header.Set("Tracestate", tracestate)
	}

	h.ServeHTTP(httptest.NewRecorder(), r)

	return kept, state
}

func newMessage(traceparent string) *weir.Message {
	return &weir.Message{ID: weir.ID{Epoch: 1, Lane: 2, Seq: 3, Nonce: "00112233445566778899"},
		Contract: "article", Key: "/a",
		TraceParent: traceparent, Body: []byte("<secret/>"), Size: 9}
}

// fakeCMS answers attempts with its answers in order, and records the trace headers of the
// attempts.
type fakeCMS struct {
	answers []weir.Result
	got     []string // traceparents
	states  []string
}

func (c *fakeCMS) Send(_ context.Context, d weir.Delivery) weir.Result {
	c.got, c.states = append(c.got, d.Message.TraceParent), append(c.states, d.Message.TraceState)
	r := c.answers[0]
	c.answers = c.answers[1:]
	return r
}

func findSpans(t *testing.T, spans []collector.Span, name string) []collector.Span {
	t.Helper()
	var found []collector.Span
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}

	return found
}

func TestExport_Off(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"NotAsked": {},
		"Disabled": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
			"OTEL_SDK_DISABLED": "true"},
		"None": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
			"OTEL_TRACES_EXPORTER":  "none",
			"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"},
		"Empty": {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "", "OTEL_SERVICE_NAME": "weir"},
	} {
		t.Run(name, func(t *testing.T) {
			e := telemetry.Open(t.Context(), func(name string) string { return env[name] },
				telemetry.Build{}, slog.DiscardHandler)
			if e != nil {
				t.Fatalf("Open = %v, want no export", e)
			}

			sender, local := &fakeCMS{}, slog.DiscardHandler
			if e.Sender(sender, "POST", "http://cms.example") != sender || e.Log(local) != local {
				t.Error("Sender or Log returned a wrapper, want the sender and the handler themselves")
			}

			if kept := postReceived(e, upstream); kept != upstream {
				t.Errorf("the traceparent became %q, want %v", kept, upstream)
			}

			e.Metrics(t.Context(), nil, func(context.Context) {})
			e.Close(t.Context())
		})
	}
}

func TestExport_OneTraceOverProcesses(t *testing.T) {
	c := newCollector(t)
	first, end := openExport(t, slog.DiscardHandler, "OTEL_EXPORTER_OTLP_ENDPOINT", c.URL(),
		"OTEL_METRICS_EXPORTER", "none",
		"OTEL_SERVICE_NAME", "front")
	kept := postReceived(first, upstream)
	end()

	server := &fakeCMS{answers: []weir.Result{{Outcome: weir.OutcomeUnavailable, Reason: "connection refused"},
		{Outcome: weir.OutcomeRetry, Status: 500, Reason: "500: <secret/>"},
		{Outcome: weir.OutcomeDelivered, Status: 201, Steps: []weir.Step{
			{Name: "find", At: time.Now(), Duration: time.Second, Status: 404},
			{Name: "create", At: time.Now()}}}}}

	accepted := time.Now().Add(-72 * time.Hour)
	second, end := openExport(t, slog.DiscardHandler)
	sender := second.Sender(server, "POST", "https://cms.example:8443/api?code=hidden")
	for _, d := range []weir.Delivery{{Attempt: 1, Since: accepted, Fence: 7},
		{Attempt: 1, Since: accepted, Fence: 7}, {Attempt: 2, Since: time.Now(), Fence: 7}} {
		d.Message = newMessage(kept)
		sender.Send(t.Context(), d)
		if d.Message.TraceParent != kept {
			t.Errorf("the message's own traceparent became %q, want %v",
				d.Message.TraceParent, kept)
		}
	}

	end()

	receive := findSpans(t, c.Spans(), "POST /api/messages")
	waits, delivers := findSpans(t, c.Spans(), "wait"), findSpans(t, c.Spans(), "deliver")
	if len(receive) != 1 || len(waits) != 3 || len(delivers) != 3 {
		t.Fatalf("got %+v, want 1 receive, 3 waits, 3 deliveries", c.Spans())
	}

	finds, creates := findSpans(t, c.Spans(), "step find"), findSpans(t, c.Spans(), "step create")
	if len(finds) != 1 || len(creates) != 1 || finds[0].Parent != delivers[2].ID ||
		creates[0].Parent != delivers[2].ID ||
		finds[0].End.Sub(finds[0].Start) != time.Second ||
		finds[0].Attributes["http.response.status_code"] != "404" {
		t.Errorf("got the steps %+v %+v, want one span of each within the third delivery",
			finds, creates)
	}

	root := receive[0]
	if root.Trace != upstream[3:35] || root.Parent != upstream[36:52] ||
		root.Kind != "SPAN_KIND_SERVER" ||
		root.ByResource["service.name"] != "front" ||
		root.Attributes["weir.lane"] != "2" || root.Attributes["weir.sequence"] != "3" ||
		root.Attributes["http.response.status_code"] != "202" || root.Failed {
		t.Errorf("got %+v, want a server span of the upstream's trace with lane, sequence and status", root)
	}

	for i, s := range append(waits, delivers...) {
		if s.Trace != root.Trace || s.Parent != root.ID {
			t.Errorf("span %d: got %+v, want it below the span %s", i, s, root.ID)
		}

		for name, value := range s.Attributes {
			if strings.Contains(value, "secret") || strings.Contains(value, "hidden") {
				t.Errorf(`the attribute %s is %q, want no "secret" and no "hidden"`, name, value)
			}
		}
	}

	for i, got := range server.got {
		if want := "00-" + root.Trace + "-" + delivers[i].ID + "-01"; got != want {
			t.Errorf("attempt %d: the CMS got %s, want %s", i, got, want)
		}

		if !waits[i].End.Equal(delivers[i].Start) {
			t.Errorf("attempt %d: waited until %s, began %s, want %v", i, waits[i].End,
				delivers[i].Start, delivers[i].Start)
		}
	}

	if !waits[0].Start.Equal(accepted.Truncate(time.Nanosecond)) ||
		waits[1].Start.Before(delivers[0].Start) {
		t.Errorf("waits began %s and %s, want at acceptance and after the first attempt",
			waits[0].Start, waits[1].Start)
	}

	if a := delivers[1]; a.Kind != "SPAN_KIND_CLIENT" || !a.Failed ||
		a.Attributes["error.type"] != "500" ||
		a.Attributes["weir.outcome"] != "retry" ||
		a.Attributes["server.address"] != "cms.example" || a.Attributes["server.port"] != "8443" ||
		a.Attributes["weir.key"] != "/a" {
		t.Errorf("got %+v, want a failed client span of the retry with status 500", a)
	}

	if a := delivers[2]; a.Failed || a.Attributes["http.response.status_code"] != "201" ||
		a.Attributes["weir.attempt"] != "2" {
		t.Errorf("got %+v, want attempt 2 with status 201", a)
	}
}

// TestExport_UnsampledByTheHost checks that Weir records a trace whose traceparent has the flag
// "not sampled", and that Weir marks the trace as sampled. With Application Insights, the host adds
// such a traceparent to each call that has none. If Weir followed the flag, it would record no
// trace of these calls.
func TestExport_UnsampledByTheHost(t *testing.T) {
	c := newCollector(t)
	e, end := openExport(t, slog.DiscardHandler, "OTEL_EXPORTER_OTLP_ENDPOINT", c.URL())
	kept := postReceived(e, strings.TrimSuffix(upstream, "01")+"00")
	server := &fakeCMS{answers: []weir.Result{{Outcome: weir.OutcomeDelivered}}}
	e.Sender(server, "POST", "http://cms.example").Send(t.Context(),
		weir.Delivery{Message: newMessage(kept), Attempt: 1})
	end()
	root, deliver := findSpans(t, c.Spans(), "POST /api/messages"),
		findSpans(t, c.Spans(), "deliver")
	if len(root) != 1 || len(deliver) != 1 || root[0].Trace != upstream[3:35] ||
		deliver[0].Trace != root[0].Trace {
		t.Fatalf("got %+v, want a receive and a deliver of the upstream's trace", c.Spans())
	}

	if want := "00-" + root[0].Trace + "-" + deliver[0].ID + "-01"; server.got[0] != want {
		t.Errorf("the CMS got %q, want %q", server.got[0], want)
	}
}

func TestExport_UnsampledStaysSo(t *testing.T) {
	c := newCollector(t)
	e, end := openExport(t, slog.DiscardHandler, "OTEL_EXPORTER_OTLP_ENDPOINT", c.URL(),
		"OTEL_TRACES_SAMPLER", "parentbased_always_on")
	kept := postReceived(e, strings.TrimSuffix(upstream, "01")+"00")
	server := &fakeCMS{answers: []weir.Result{{Outcome: weir.OutcomeDelivered}}}
	e.Sender(server, "POST", "http://cms.example").Send(t.Context(),
		weir.Delivery{Message: newMessage(kept), Attempt: 1})
	end()
	if len(c.Spans()) != 0 {
		t.Errorf("got %+v, want no span", c.Spans())
	}

	if got := server.got[0]; !strings.HasPrefix(got, upstream[:36]) ||
		!strings.HasSuffix(got, "-00") {
		t.Errorf("the CMS got %q, want the same trace, not sampled", got)
	}
}

func TestExport_WithoutUpstream(t *testing.T) {
	c := newCollector(t)
	e, end := openExport(t, slog.DiscardHandler, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		c.URL()+"/v1/traces")
	kept := postReceived(e, "")
	m := newMessage("")
	if err := e.File(t.Context(), m, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}

	server := &fakeCMS{answers: []weir.Result{{Outcome: weir.OutcomeDelivered},
		{Outcome: weir.OutcomeDelivered}}}
	sender := e.Sender(server, "POST", "http://cms.example")
	sender.Send(t.Context(), weir.Delivery{Message: m, Attempt: 1})

	// This message was accepted without export, so it has no trace.
	sender.Send(t.Context(), weir.Delivery{Message: newMessage(""), Attempt: 1})
	end()
	receive, file, waits, delivers := findSpans(t, c.Spans(), "POST /api/messages"),
		findSpans(t, c.Spans(), "file"),
		findSpans(t, c.Spans(), "wait"), findSpans(t, c.Spans(), "deliver")
	if len(receive) != 1 || receive[0].Parent != "" || !strings.Contains(kept, receive[0].Trace) {
		t.Errorf("kept %q of %+v, want 1 receive, no Parent and %q", kept, receive,
			receive[0].Trace)
	}

	if len(file) != 1 || delivers[0].Parent != file[0].ID || file[0].Trace == receive[0].Trace {
		t.Errorf("got %+v and %+v, want one file span with a trace of its own, and deliveries below it", file, delivers)
	}

	if waits[1].Parent != "" || delivers[1].Parent != waits[1].ID {
		t.Errorf("got %+v and %+v, want a wait that begins a trace, and the delivery below it",
			waits[1], delivers[1])
	}
}

// TestExport_Conventions checks attributes that OpenTelemetry's HTTP conventions require:
// url.scheme of a server span, server.port of a client span, and error.type of a failed span.
func TestExport_Conventions(t *testing.T) {
	c := newCollector(t)
	e, end := openExport(t, slog.DiscardHandler, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		c.URL()+"/v1/traces")
	h := e.Receive("/api/messages", http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))

	r := httptest.NewRequest(http.MethodPost, "/api/messages", strings.NewReader("<a/>"))
	r.Header.Set("X-Forwarded-Proto", "https")
	h.ServeHTTP(httptest.NewRecorder(), r)
	server := &fakeCMS{answers: []weir.Result{{Outcome: weir.OutcomeDelivered}}}
	e.Sender(server, "POST", "https://cms.example/api").Send(t.Context(),
		weir.Delivery{Message: newMessage(""), Attempt: 1})
	end()

	for name, want := range map[string][2]string{"POST /api/messages": {"url.scheme", "https"},
		"deliver": {"server.port", "443"}} {
		if spans := findSpans(t, c.Spans(), name); len(spans) != 1 ||
			spans[0].Attributes[want[0]] != want[1] {
			t.Errorf("%s: %s is not %s: %+v", name, want[0], want[1], spans)
		}
	}

	if spans := findSpans(t, c.Spans(), "POST /api/messages"); len(spans) != 1 ||
		!spans[0].Failed ||
		spans[0].Attributes["error.type"] != "503" {
		t.Errorf("got %+v, want one failed span with error.type 503", spans)
	}
}

func TestExport_Logs(t *testing.T) {
	c := newCollector(t)
	var text logLines
	local := slog.NewJSONHandler(&text, nil)
	e, end := openExport(t, local, "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", c.URL()+"/v1/logs")
	log := slog.New(e.Log(local)).With("lane", 2)
	log.Debug("drain: below the level")
	log.Info("drain: attempt", telemetry.TraceIDKey, upstream[3:35])
	log.Info("drain: attempt", telemetry.TraceIDKey, "")
	end()
	got := c.Records()
	if len(got) != 2 || got[0].Text != "drain: attempt" || got[0].Severity != "INFO" ||
		got[0].Trace != upstream[3:35] || got[1].Trace != "" {
		t.Errorf("got %+v, want two records, the first of the trace", got)
	}

	if logged := strings.Count(text.String(), `"msg":"drain: attempt","lane":2`); logged != 2 {
		t.Errorf("got the line %d times, want 2:\n%s", logged, text.String())
	}
}

type noCalls struct{}

func (noCalls) Snapshot() map[string]int64 { return nil }
func (noCalls) Failures() map[string]int64 { return nil }

func TestExport_Metrics(t *testing.T) {
	c := newCollector(t)
	e, end := openExport(t, slog.DiscardHandler, "OTEL_EXPORTER_OTLP_ENDPOINT", c.URL())
	m := telemetry.NewMetrics(telemetry.Config{Contracts: []string{"article"}, Storage: noCalls{},
		Now: time.Now})
	e.Metrics(t.Context(), m.Registry,
		func(context.Context) { m.Saw(7, telemetry.LaneView{Waiting: 3}) })
	m.Filed([]weir.Message{{Contract: "article"}})
	end()

	for _, name := range []string{"weir_messages_accepted_total", "weir_delivery_lag_seconds",
		"weir_build_info", "go_goroutines"} {
		if c.Points(name) == 0 {
			t.Errorf("got no point of %s, want some", name)
		}
	}

	waiting := slices.Collect(maps.Values(c.LaneGauge("weir_lane_waiting", "7")))
	if !slices.Equal(waiting, []float64{3}) {
		t.Errorf("waiting in the lane, by instance: %v, want the 3 of the refresh before the export", waiting)
	}
}

func TestExport_GRPC(t *testing.T) {
	c := newCollector(t)
	e, end := openExport(t, slog.DiscardHandler, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", c.RPC(),
		"OTEL_EXPORTER_OTLP_PROTOCOL",
		"grpc")
	postReceived(e, upstream)
	end()
	if spans := c.Spans(); len(spans) != 1 || spans[0].Trace != upstream[3:35] {
		t.Errorf("got %+v, want one span of the upstream's trace", spans)
	}
}

func TestExport_UnknownSettingIsLoggedAndIgnored(t *testing.T) {
	for _, c := range []struct{ name, value string }{{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"},
		{"OTEL_TRACES_EXPORTER", "zipkin"}} {
		t.Run(c.name, func(t *testing.T) {
			var text logLines
			e, end := openExport(t, slog.NewJSONHandler(&text, nil),
				"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1", c.name, c.value)
			if kept := postReceived(e, upstream); kept != upstream {
				t.Errorf("kept %q, want %v", kept, upstream)
			}

			end()
			if !strings.Contains(text.String(), c.value) {
				t.Errorf("got the log\n%s\nwant a failure with %s", text.String(), c.value)
			}
		})
	}
}

// TestExport_CollectorHangs checks that attempts and the end of the process do not wait for a
// collector that does not answer.
func TestExport_CollectorHangs(t *testing.T) {
	c := newCollector(t)
	defer c.Hang()()
	var text logLines
	const aMinute = "60000" // in ms; each export would wait so long for the collector's answer
	e, _ := openExport(t, slog.NewJSONHandler(&text, nil), "OTEL_EXPORTER_OTLP_ENDPOINT", c.URL(),
		"OTEL_BSP_SCHEDULE_DELAY",
		"1",
		"OTEL_EXPORTER_OTLP_TIMEOUT", aMinute, "OTEL_BSP_EXPORT_TIMEOUT", aMinute,
		"OTEL_BLRP_EXPORT_TIMEOUT", aMinute)

	server := &fakeCMS{}
	sender := e.Sender(server, "POST", "http://cms.example")
	for range 10_000 { // more than the SDK's queue holds (2,048 spans)
		server.answers = []weir.Result{{Outcome: weir.OutcomeDelivered}}
		sender.Send(t.Context(), weir.Delivery{Message: newMessage(upstream), Attempt: 1})
	}

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	e.Close(ctx)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the end took %s, want at most 30s", took)
	}

	if !strings.Contains(text.String(), "not all was exported") {
		t.Errorf("got the log\n%s\nwant \"not all was exported\" in it", text.String())
	}
}

func TestExport_TraceState(t *testing.T) {
	c := newCollector(t)
	e, _ := openExport(t, slog.DiscardHandler, "OTEL_EXPORTER_OTLP_ENDPOINT", c.URL(),
		"OTEL_METRICS_EXPORTER", "none")
	kept, state := postWithState(e, upstream, "vendor=a1,other=b2")
	if state != "vendor=a1,other=b2" {
		t.Errorf("the tracestate became %q, want vendor=a1,other=b2", state)
	}

	server := &fakeCMS{answers: []weir.Result{{Outcome: weir.OutcomeDelivered, Status: 201}}}
	m := newMessage(kept)
	m.TraceState = state
	e.Sender(server, "POST", "https://cms.example").Send(t.Context(),
		weir.Delivery{Message: m, Attempt: 1})
	if server.states[0] != state {
		t.Errorf("the CMS got %q, want %v", server.states[0], state)
	}

	if _, state := postWithState(e, "", "vendor=a1"); state != "" {
		t.Errorf("a trace that begins here has %q, want none", state)
	}

	if _, state := postWithState(e, upstream, "no entry"); state != "" {
		t.Errorf("an invalid tracestate became %q, want none", state)
	}
}
