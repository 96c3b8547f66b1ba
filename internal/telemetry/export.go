package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	logsdk "go.opentelemetry.io/otel/sdk/log"
	metricsdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	tracesdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"weir/internal/panics"
)

// scope is the instrumentation scope of spans and log records.
const scope = "weir"

// Export sends traces, metrics and logs to an OpenTelemetry collector. The exported methods of a
// nil Export can be called, but send nothing.
//
// The SDK sends all data in goroutines of its own. Spans and log records wait in bounded queues. If
// the collector is slow or cannot be reached, spans and log records are lost, but no delivery is
// delayed.
type Export struct {
	env      func(string) string
	log      *slog.Logger // for errors of the export itself; its records are not exported
	logs     slog.Handler // nil = logs are not exported
	tracer   trace.Tracer // nil = traces are not exported
	resource *resource.Resource

	mu   sync.Mutex
	ends []func(context.Context) error // functions that Close calls
}

// Open starts the export of traces and logs that the standard variables configure
// (OTEL_EXPORTER_OTLP_ENDPOINT and others). The parameter env returns the value of a variable.
// Export.Metrics starts the export of metrics.
//
// Open returns nil if the variables configure no export. If traces or logs cannot be exported, Open
// only logs the failure, because Weir must deliver without telemetry, too.
func Open(ctx context.Context, env func(string) string, b Build, log slog.Handler) *Export {
	if !isExportWanted(env) {
		return nil
	}

	e := &Export{env: env, log: slog.New(log)}

	// The SDK's logger and error handler are global. By default both print to stderr, and the
	// Functions host logs each line of stderr as an error.
	otel.SetLogger(logr.FromSlogHandler(log))
	otel.SetErrorHandler(&sdkErrors{log: e.log, now: time.Now})
	var err error
	if e.resource, err = newResource(ctx, b); err != nil {
		e.log.Warn("telemetry: resource incomplete", "err", err)
	}

	e.startTraces(ctx)
	e.startLogs(ctx, log)

	return e
}

// newResource returns a description of this process. The values of OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES replace the attributes that are set here.
func newResource(ctx context.Context, b Build) (*resource.Resource, error) {
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithProcessPID(),
		resource.WithAttributes(semconv.ServiceName("weir"), semconv.ServiceVersion(b.Version),
			semconv.ServiceInstanceID(uuid.NewString())),
		resource.WithFromEnv())
}

// The signals of OpenTelemetry, spelled as in the names of its variables.
const (
	traces  = "TRACES"
	metrics = "METRICS"
	logs    = "LOGS"
)

// isExportWanted reports whether the variables configure the export of at least one signal.
func isExportWanted(env func(string) string) bool {
	return !strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") &&
		slices.ContainsFunc([]string{traces, metrics, logs}, func(signal string) bool {
			return signalEndpoint(env, signal) != "" && env("OTEL_"+signal+"_EXPORTER") != "none"
		})
}

// signalEndpoint returns an empty string if the signal has no endpoint.
func signalEndpoint(env func(string) string, signal string) string {
	if own := env("OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT"); own != "" {
		return own
	}
	return env("OTEL_EXPORTER_OTLP_ENDPOINT")
}

// signalProtocol returns an empty string if the signal is not exported. A signal with an unknown
// exporter or protocol is not exported, and the unknown value is logged.
func (e *Export) signalProtocol(signal string) string {
	if signalEndpoint(e.env, signal) == "" {
		return ""
	}

	switch exporter := e.env("OTEL_" + signal + "_EXPORTER"); exporter {
	case "", "otlp":
	case "none":
		return ""
	default:
		e.log.Warn("telemetry: signal not exported", "err",
			fmt.Sprintf("OTEL_%s_EXPORTER is %q; otlp and none are known", signal, exporter))
		return ""
	}

	protocol := e.env("OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL")
	if protocol == "" {
		protocol = e.env("OTEL_EXPORTER_OTLP_PROTOCOL")
	}

	switch protocol {
	case "":
		return httpProtobuf
	case httpProtobuf, grpcProtocol:
		return protocol
	}

	e.log.Warn("telemetry: signal not exported", "err",
		fmt.Sprintf("the protocol of %s is %q; %s and %s are known", strings.ToLower(signal),
			protocol, httpProtobuf, grpcProtocol))

	return ""
}

func (e *Export) reportFailure(signal string, err error) {
	e.log.Warn("telemetry: signal not exported", "err",
		fmt.Errorf("%s: %w", strings.ToLower(signal), err))
}

func (e *Export) atEnd(end func(context.Context) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ends = append(e.ends, end)
}

// sampler samples every trace, even if a request's traceparent has the flag "not sampled". With
// Application Insights, the host adds such a traceparent to each call without a traceparent. A
// sampler that followed the flag would sample no message.
var sampler = tracesdk.ParentBased(tracesdk.AlwaysSample(),
	tracesdk.WithRemoteParentNotSampled(tracesdk.AlwaysSample()))

func (e *Export) startTraces(ctx context.Context) {
	exporter, err := newSpanExporter(ctx, e.signalProtocol(traces))
	switch {
	case err != nil:
		e.reportFailure(traces, err)
		return
	case exporter == nil:
		return
	}

	options := []tracesdk.TracerProviderOption{tracesdk.WithBatcher(exporter),
		tracesdk.WithResource(e.resource)}
	if e.env("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, tracesdk.WithSampler(sampler))
	} // otherwise the SDK reads the sampler from OTEL_TRACES_SAMPLER

	provider := tracesdk.NewTracerProvider(options...)
	e.atEnd(provider.Shutdown)
	e.tracer = provider.Tracer(scope)
}

func (e *Export) startLogs(ctx context.Context, local slog.Handler) {
	exporter, err := newLogExporter(ctx, e.signalProtocol(logs))
	switch {
	case err != nil:
		e.reportFailure(logs, err)
		return
	case exporter == nil:
		return
	}

	provider := logsdk.NewLoggerProvider(logsdk.WithProcessor(logsdk.NewBatchProcessor(exporter)),
		logsdk.WithResource(e.resource))
	e.atEnd(provider.Shutdown)
	e.logs = newLogs(provider, local)
}

// Metrics starts to send the metrics of g at the interval OTEL_METRIC_EXPORT_INTERVAL. Close sends
// the metrics a last time. Before each read of g, the exporter calls refresh and waits for its
// return.
func (e *Export) Metrics(ctx context.Context, g prometheus.Gatherer,
	refresh func(context.Context)) {
	if e == nil {
		return
	}

	exporter, err := newMetricExporter(ctx, e.signalProtocol(metrics))
	switch {
	case err != nil:
		e.reportFailure(metrics, err)
		return
	case exporter == nil:
		return
	}

	producer := refreshedProducer{bridge.NewMetricProducer(bridge.WithGatherer(g)), refresh}
	reader := metricsdk.NewPeriodicReader(exporter, metricsdk.WithProducer(producer))
	provider := metricsdk.NewMeterProvider(metricsdk.WithReader(reader),
		metricsdk.WithResource(e.resource))
	e.atEnd(provider.Shutdown)
}

type refreshedProducer struct {
	metricsdk.Producer
	refresh func(context.Context)
}

// Produce implements metricsdk.Producer.
func (p refreshedProducer) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	p.refresh(ctx)
	return p.Producer.Produce(ctx)
}

// Log returns a handler that logs to local and to the collector. If e exports no logs, Log returns
// local.
func (e *Export) Log(local slog.Handler) slog.Handler {
	if e == nil || e.logs == nil {
		return local
	}
	return slog.NewMultiHandler(local, e.logs)
}

// Close sends the queued data, and stops the export. Data that has not been sent when ctx ends is
// lost.
func (e *Export) Close(ctx context.Context) {
	if e == nil {
		return
	}

	e.mu.Lock()
	ends := e.ends
	e.ends = nil
	e.mu.Unlock()
	errs := make([]error, len(ends))
	var all sync.WaitGroup
	for i, end := range ends {
		all.Go(func() { errs[i] = panics.Catch(func() error { return end(ctx) }) })
	}

	all.Wait()
	if err := errors.Join(errs...); err != nil {
		e.log.Warn("telemetry: not all was exported", "err", err)
	}
}

// sdkErrors logs at most one error of the SDK per minute, because an unreachable collector causes
// an error each second.
type sdkErrors struct {
	log *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	last time.Time // time of the last logged error
}

// Handle implements otel.ErrorHandler.
func (c *sdkErrors) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.last) >= time.Minute {
		c.last = now
		c.log.Warn("telemetry: not exported", "err", err)
	}
}
