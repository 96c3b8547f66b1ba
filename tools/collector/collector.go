// Package collector is a small stand-in for an OpenTelemetry collector on loopback. It receives
// traces, metrics and logs by OTLP over HTTP (protobuf), and traces also over gRPC. It keeps the
// received telemetry for tests.
package collector

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Span is a received span.
type Span struct {
	Name, Kind             string
	Trace, ID, Parent      string // hex
	Start, End             time.Time
	Failed                 bool              // the status of the span is an error
	Attributes, ByResource map[string]string // attributes of the span and of its resource, as text
}

// Record is a received log record. Trace and Span are hex.
type Record struct{ Text, Severity, Trace, Span string }

// Collector receives exported telemetry. Safe for concurrent use.
type Collector struct {
	mu       sync.Mutex
	spans    []Span
	records  []Record
	metrics  map[string]int       // number of points, by name of the metric
	gauges   map[gaugeKey]float64 // last values
	requests int
	hang     chan struct{} // closed by the release function of Hang; nil = Hang was not called

	server *http.Server
	grpc   *grpc.Server
	web    net.Listener
	rpc    net.Listener
}

type gaugeKey struct{ metric, lane, instance string }

// Start listens on two free ports of loopback. The caller must call Close.
func Start() (*Collector, error) {
	c := &Collector{metrics: map[string]int{}, gauges: map[gaugeKey]float64{}}
	var err error
	if c.web, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}

	if c.rpc, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		c.web.Close()
		return nil, err
	}

	c.server = &http.Server{Handler: http.HandlerFunc(c.handleExport),
		ReadHeaderTimeout: 10 * time.Second}
	c.grpc = grpc.NewServer()
	tracepb.RegisterTraceServiceServer(c.grpc, traceServer{c: c})
	go c.server.Serve(c.web)
	go c.grpc.Serve(c.rpc)

	return c, nil
}

// Close stops the collector.
func (c *Collector) Close() {
	c.server.Close()
	c.grpc.Stop()
}

// URL returns the address for http/protobuf.
func (c *Collector) URL() string { return "http://" + c.web.Addr().String() }

// RPC returns the address for gRPC, which takes only traces.
func (c *Collector) RPC() string { return "http://" + c.rpc.Addr().String() }

// Hang makes the collector hold each request over HTTP until release is called. If the client
// leaves before the release, the collector drops the request's telemetry. The caller must call
// release at most once.
func (c *Collector) Hang() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hang := make(chan struct{})
	c.hang = hang
	return func() { close(hang) }
}

// Spans returns the spans that have arrived so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Records returns the log records that have arrived so far.
func (c *Collector) Records() []Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Record(nil), c.records...)
}

// Points returns the number of received data points of a metric.
func (c *Collector) Points(metric string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.metrics[metric]
}

// LaneGauge returns the last values of a lane's gauge, by service.instance.id.
func (c *Collector) LaneGauge(metric, lane string) map[string]float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]float64{}
	for key, value := range c.gauges {
		if key.metric == metric && key.lane == lane {
			out[key.instance] = value
		}
	}

	return out
}

// Requests returns the number of requests that have arrived over HTTP, answered or not.
func (c *Collector) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

func (c *Collector) handleExport(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	c.mu.Lock()
	c.requests++
	hang := c.hang
	c.mu.Unlock()

	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
			return
		}
	}

	if err := c.keepExport(r.URL.Path, body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	w.Header().Set("Content-Type", "application/x-protobuf")
}

func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("Content-Encoding") != "gzip" {
		return body, err
	}

	unzip, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}

	return io.ReadAll(unzip)
}

func (c *Collector) keepExport(path string, body []byte) error {
	switch path {
	case "/v1/traces":
		var m tracepb.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &m); err != nil {
			return err
		}
		c.keepSpans(&m)

	case "/v1/metrics":
		var m metricspb.ExportMetricsServiceRequest
		if err := proto.Unmarshal(body, &m); err != nil {
			return err
		}
		c.keepMetrics(&m)

	case "/v1/logs":
		var m logspb.ExportLogsServiceRequest
		if err := proto.Unmarshal(body, &m); err != nil {
			return err
		}
		c.keepLogs(&m)
	}

	return nil
}

func (c *Collector) keepSpans(m *tracepb.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, r := range m.ResourceSpans {
		for _, s := range r.ScopeSpans {
			for _, span := range s.Spans {
				c.spans = append(c.spans, toSpan(span, r.Resource.GetAttributes()))
			}
		}
	}
}

func toSpan(s *spanpb.Span, resource []*commonpb.KeyValue) Span {
	return Span{
		Name: s.Name, Kind: s.Kind.String(), Trace: hex.EncodeToString(s.TraceId),
		ID:         hex.EncodeToString(s.SpanId),
		Parent:     hex.EncodeToString(s.ParentSpanId),
		Start:      time.Unix(0, int64(s.StartTimeUnixNano)),
		End:        time.Unix(0, int64(s.EndTimeUnixNano)),
		Failed:     s.Status.GetCode() == spanpb.Status_STATUS_CODE_ERROR,
		Attributes: attributeTexts(s.Attributes),
		ByResource: attributeTexts(resource),
	}
}

func attributeTexts(attributes []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range attributes {
		out[a.Key] = valueText(a.Value)
	}
	return out
}

func (c *Collector) keepMetrics(m *metricspb.ExportMetricsServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, r := range m.ResourceMetrics {
		instance := attributeTexts(r.Resource.GetAttributes())["service.instance.id"]
		for _, s := range r.ScopeMetrics {
			for _, metric := range s.Metrics {
				for _, point := range metric.GetGauge().GetDataPoints() {
					lane := attributeTexts(point.Attributes)["lane"]
					c.gauges[gaugeKey{metric.Name, lane, instance}] = point.GetAsDouble()
				}

				c.metrics[metric.Name] += len(metric.GetSum().GetDataPoints()) +
					len(metric.GetGauge().GetDataPoints()) +
					len(metric.GetHistogram().GetDataPoints())
			}
		}
	}
}

func (c *Collector) keepLogs(m *logspb.ExportLogsServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, r := range m.ResourceLogs {
		for _, s := range r.ScopeLogs {
			for _, l := range s.LogRecords {
				c.records = append(c.records,
					Record{Text: valueText(l.Body), Severity: l.SeverityText,
						Trace: hex.EncodeToString(l.TraceId), Span: hex.EncodeToString(l.SpanId)})
			}
		}
	}
}

type traceServer struct {
	tracepb.UnimplementedTraceServiceServer
	c *Collector
}

// Export implements tracepb.TraceServiceServer.
func (s traceServer) Export(_ context.Context,
	m *tracepb.ExportTraceServiceRequest) (*tracepb.ExportTraceServiceResponse, error) {
	s.c.keepSpans(m)
	return &tracepb.ExportTraceServiceResponse{}, nil
}
