package e2e_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/tools/collector"
)

// The test kills the process that accepted a message, and another process delivers the message. The
// spans of both processes and the last request to the CMS belong to the upstream's trace.
func TestTrace_OneOverKilledProcesses(t *testing.T) {
	c, err := collector.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL(), "OTEL_METRIC_EXPORT_INTERVAL=1000",
		// The unit is ms. The intervals are short because a killed process loses the telemetry that
		// it has not sent.
		"OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_BLRP_SCHEDULE_DELAY=100"}

	s := newSystemIn(t, env, 1, "max: 5m", "max: 1s", "lease: 30s", "lease: 15s")
	s.setFaults(`{"down":true}`)
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	s.postTraced("/traced", "00-"+trace+"-"+parent+"-01", "vendor=a1")
	named := func(name, outcome string) (found []collector.Span) {
		for _, span := range c.Spans() {
			if span.Name == name && (outcome == "" || span.Attributes["weir.outcome"] == outcome) {
				found = append(found, span)
			}
		}
		return found
	}

	s.awaitCondition("receive and a failed attempt are exported", 20*time.Second, func() bool {
		return len(named("POST /api/messages", "")) == 1 && len(named("deliver", "unavailable")) > 0
	})
	first := named("deliver", "unavailable")[0].ByResource["service.instance.id"]
	s.killNext(0)
	s.setFaults(`{}`)
	s.awaitCondition("the delivery is exported", time.Minute,
		func() bool { return len(named("deliver", "delivered")) == 1 })
	s.awaitCondition("metrics and logs too", 20*time.Second, func() bool {
		return c.Points("weir_delivery_attempts_total") > 0 &&
			hasTrace(c.Records(), "drain: attempt", trace)
	})

	receive, deliver := named("POST /api/messages", "")[0], named("deliver", "delivered")[0]
	if receive.Trace != trace || receive.Parent != parent {
		t.Errorf("receive: %+v, want Trace %v and Parent %v", receive, trace, parent)
	}

	if deliver.Trace != trace || deliver.Parent != receive.ID ||
		deliver.ByResource["service.instance.id"] == first {
		t.Errorf("deliver, after %s: %+v, want Trace %v, Parent %v and service.instance.id another than %v", first,
			deliver, trace, receive.ID, first)
	}

	waited := false
	for _, w := range named("wait", "") {
		waited = waited || w.Trace == trace && w.Parent == receive.ID &&
			w.End.Equal(deliver.Start) &&
			!w.Start.After(receive.End)
	}

	if !waited {
		t.Errorf("no span of the wait from acceptance to %s among %+v", deliver.Start,
			named("wait", ""))
	}

	requests := s.readRequests()
	last := requests[len(requests)-1]
	if want := "00-" + trace + "-" + deliver.ID + "-01"; last.Trace != want ||
		last.State != "vendor=a1" {
		t.Errorf("the CMS got %q with %q, want %q with that of the upstream", last.Trace,
			last.State, want)
	}

	s.checkRecord()
	s.awaitCondition("the metrics say the same", 20*time.Second, func() bool {
		s.runSweep()
		return s.hasMetrics(`weir_messages_finished_total{contract="article",stage="delivered"} 1`,
			`weir_delivery_lag_seconds_count 1`,
			`weir_lane_waiting{lane="0"} 0`, `weir_lane_oldest_age_seconds{lane="0"} 0`,
			`weir_lane_paused{by="cms",lane="0"} 0`)
	})
}

// Each instance pushes the gauges of all lanes, whether the instance runs the sweep or not. So
// operators must read the maximum over the instances: the sum would count a message several times.
func TestMetrics_GaugesFromEachGroup(t *testing.T) {
	c, err := collector.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL(), "OTEL_METRIC_EXPORT_INTERVAL=1000"}
	s := newSystemUnder(t, env, onFlex(0))
	const instances = 5 // onFlex starts five instances
	s.awaitCondition("each instance pushes its view of the empty lane", time.Minute, func() bool {
		waiting := slices.Collect(maps.Values(c.LaneGauge("weir_lane_waiting", "0")))
		return slices.Equal(waiting, make([]float64, instances))
	})

	s.requestStatus(200, "POST", "/api/pause", `{"all":true,"reason":"r"}`)
	for n := range 2 {
		s.requestStatus(202, "POST", "/api/messages", titledArticle(fmt.Sprint("/gauges/", n), "T"))
	}

	var waiting map[string]float64
	s.awaitCondition("each instance pushes what waits now", time.Minute, func() bool {
		waiting = c.LaneGauge("weir_lane_waiting", "0")
		return slices.Equal(slices.Collect(maps.Values(waiting)), []float64{2, 2, 2, 2, 2})
	})

	if oldest := c.LaneGauge("weir_lane_oldest_age_seconds", "0"); len(oldest) != instances {
		t.Errorf("the age of the oldest message by instance: %v, want it of %d", oldest, instances)
	}
}

// runSweep starts functions/sweep at once, without its timer.
func (s *system) runSweep() {
	s.t.Helper()
	resp, err := http.Post(s.weir+"/admin/functions/sweep", "application/json",
		strings.NewReader("{}"))
	if err != nil {
		s.t.Fatal(err)
	}

	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		s.t.Fatalf("got %v, want status 202", resp.Status)
	}
}

// hasMetrics reports whether the metrics of the only instance have all given lines.
func (s *system) hasMetrics(lines ...string) bool {
	resp, err := http.Get(s.weir + "/api/metrics")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	for _, line := range lines {
		if err != nil || !strings.Contains(string(text), "\n"+line+"\n") {
			return false
		}
	}

	return true
}

// A command sends its telemetry before it ends. A command also ends if the collector does not
// answer.
func TestTrace_CommandFlushes(t *testing.T) {
	c, err := collector.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := newBareSystem(t)
	appender, _ := s.openAppender(1)
	app, env := s.stageApp(), []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL(),
		"OTEL_EXPORTER_OTLP_TIMEOUT=120000"} // milliseconds
	s.appendMessage(appender, "/p/a", 0)
	s.runHandler(t.Context(), app, env, "drain").checkOutput(t, 0, "delivered", "")
	delivered := 0
	for _, span := range c.Spans() {
		if span.Name == "deliver" && span.Attributes["weir.outcome"] == "delivered" {
			delivered++
		}
	}

	if delivered != 1 || c.Points("weir_messages_finished_total") == 0 {
		t.Errorf("%+v, %d points, want one span of a delivery, and points", c.Spans(),
			c.Points("weir_messages_finished_total"))
	}
	defer c.Hang()()
	s.appendMessage(appender, "/p/a", 1)
	began := time.Now()
	s.runHandler(t.Context(), app, env, "drain").checkOutput(t, 0, "delivered",
		"not all was exported")
	if took := time.Since(began); took > slowdown*time.Minute {
		t.Errorf("it took %s, want at most 1m on a quiet machine", took)
	}
}

// hasTrace reports whether a log record with the text belongs to the trace.
func hasTrace(records []collector.Record, text, trace string) bool {
	for _, r := range records {
		if r.Text == text && r.Trace == trace {
			return true
		}
	}
	return false
}

// postTraced posts a message with the trace headers of an upstream.
func (s *system) postTraced(path, traceparent, tracestate string) {
	s.t.Helper()
	body := `<article path="` + path + `" version="1"><title>Traced</title></article>`
	req, err := http.NewRequest(http.MethodPost, s.weir+"/api/messages", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}

	req.Header.Set("Content-Type", "application/xml")
	req.Header.Set("Traceparent", traceparent)
	req.Header.Set("Tracestate", tracestate)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}

	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		s.t.Fatalf("got %v, want status 202", resp.Status)
	}
}

// With Application Insights, the host adds a trace header to each call that has none, and marks the
// trace as not sampled. Weir must send its spans nevertheless.
func TestTrace_UnderApplicationInsights(t *testing.T) { inEachMode(t, testTraceOfUnsampled) }

func testTraceOfUnsampled(t *testing.T) {
	c, err := collector.Start()
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(c.Close)
	s := newSystemUnder(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL(),
		"OTEL_BSP_SCHEDULE_DELAY=100"}, []string{"--traceparent"})
	s.awaitStage(s.postAccepted("/marked"), "delivered")
	s.awaitCondition("the message is traced", 20*time.Second, func() bool {
		names := map[string]int{}
		for _, span := range c.Spans() {
			names[span.Name]++
		}
		return names["POST /api/messages"] == 1 && names["deliver"] == 1
	})
}
