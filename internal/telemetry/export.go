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
	"go.opentelemetry.io/otel/sdk/resource"
	tracesdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// scope names us as the maker of spans and log records.
const scope = "weir"

// Export sends traces, metrics and logs to an OpenTelemetry collector. A nil Export sends
// nothing and costs nothing: its methods hand back what they were given.
//
// Everything is sent from goroutines of the SDK's own, which take it from bounded queues.
// A collector that is slow or away costs spans and records, never a delivery.
type Export struct {
	env      func(string) string
	log      *slog.Logger // our own troubles: never exported
	logs     slog.Handler // nil = logs are not exported
	tracer   trace.Tracer // nil = traces are not
	resource *resource.Resource

	mu   sync.Mutex
	ends []func(context.Context) error
}

// Open starts what the usual variables (OTEL_EXPORTER_OTLP_ENDPOINT and its like) ask for,
// and gives nil where they ask for nothing. Log is where this process logs to anyway.
// Something that cannot be exported is told there and left out: it is no reason not to
// deliver.
func Open(ctx context.Context, env func(string) string, b Build, log slog.Handler) *Export {
	if !asked(env) {
		return nil
	}
	e := &Export{env: env, log: slog.New(log)}
	// These two are the process's, not ours; by default they print to stderr, each line of
	// which the Functions host takes for an error.
	otel.SetLogger(logr.FromSlogHandler(log))
	otel.SetErrorHandler(&complaints{log: e.log, now: time.Now})
	var err error
	if e.resource, err = describe(ctx, b); err != nil {
		e.log.Warn("telemetry: resource incomplete", "err", err)
	}
	e.startTraces(ctx)
	e.startLogs(ctx, log)
	return e
}

// describe says who sends: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
func describe(ctx context.Context, b Build) (*resource.Resource, error) {
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(),
		resource.WithAttributes(semconv.ServiceName("weir"), semconv.ServiceVersion(b.Version), semconv.ServiceInstanceID(uuid.NewString())),
		resource.WithFromEnv())
}

// The signals, as the names of variables spell them.
const (
	traces  = "TRACES"
	metrics = "METRICS"
	logs    = "LOGS"
)

// asked says whether any signal has somewhere to go.
func asked(env func(string) string) bool {
	return !strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") &&
		slices.ContainsFunc([]string{traces, metrics, logs}, func(signal string) bool {
			return endpoint(env, signal) != "" && env("OTEL_"+signal+"_EXPORTER") != "none"
		})
}

// endpoint is where a signal goes to; empty = nowhere.
func endpoint(env func(string) string, signal string) string {
	if own := env("OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT"); own != "" {
		return own
	}
	return env("OTEL_EXPORTER_OTLP_ENDPOINT")
}

// protocol is how a signal is to be sent; empty = not at all.
func (e *Export) protocol(signal string) string {
	if endpoint(e.env, signal) == "" {
		return ""
	}
	switch exporter := e.env("OTEL_" + signal + "_EXPORTER"); exporter {
	case "", "otlp":
	case "none":
		return ""
	default:
		e.log.Warn("telemetry: signal not exported", "err", fmt.Sprintf("OTEL_%s_EXPORTER is %q; otlp and none are known", signal, exporter))
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
	e.log.Warn("telemetry: signal not exported", "err", fmt.Sprintf("the protocol of %s is %q; %s and %s are known", strings.ToLower(signal), protocol, httpProtobuf, grpcProtocol))
	return ""
}

// failed tells of an exporter that could not be made.
func (e *Export) failed(signal string, err error) {
	e.log.Warn("telemetry: signal not exported", "err", fmt.Errorf("%s: %w", strings.ToLower(signal), err))
}

// atEnd has Close call a function.
func (e *Export) atEnd(end func(context.Context) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ends = append(e.ends, end)
}

// sampler traces everything. With Application Insights on, the host adds a traceparent to each call
// that has none, and marks it as not sampled: by the flag alone no message would be traced.
var sampler = tracesdk.ParentBased(tracesdk.AlwaysSample(), tracesdk.WithRemoteParentNotSampled(tracesdk.AlwaysSample()))

func (e *Export) startTraces(ctx context.Context) {
	exporter, err := newSpanExporter(ctx, e.protocol(traces))
	switch {
	case err != nil:
		e.failed(traces, err)
		return
	case exporter == nil:
		return
	}
	options := []tracesdk.TracerProviderOption{tracesdk.WithBatcher(exporter), tracesdk.WithResource(e.resource)}
	if e.env("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, tracesdk.WithSampler(sampler))
	} // else the SDK reads it
	provider := tracesdk.NewTracerProvider(options...)
	e.atEnd(provider.Shutdown)
	e.tracer = provider.Tracer(scope)
}

func (e *Export) startLogs(ctx context.Context, local slog.Handler) {
	exporter, err := newLogExporter(ctx, e.protocol(logs))
	switch {
	case err != nil:
		e.failed(logs, err)
		return
	case exporter == nil:
		return
	}
	provider := logsdk.NewLoggerProvider(logsdk.WithProcessor(logsdk.NewBatchProcessor(exporter)), logsdk.WithResource(e.resource))
	e.atEnd(provider.Shutdown)
	e.logs = newLogs(provider, local)
}

// Metrics begins to send what the gatherer gathers, each OTEL_METRIC_EXPORT_INTERVAL.
func (e *Export) Metrics(ctx context.Context, g prometheus.Gatherer) {
	if e == nil {
		return
	}
	exporter, err := newMetricExporter(ctx, e.protocol(metrics))
	switch {
	case err != nil:
		e.failed(metrics, err)
		return
	case exporter == nil:
		return
	}
	reader := metricsdk.NewPeriodicReader(exporter, metricsdk.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(g))))
	provider := metricsdk.NewMeterProvider(metricsdk.WithReader(reader), metricsdk.WithResource(e.resource))
	e.atEnd(provider.Shutdown)
}

// Log gives the handler to log to: the given one, and the collector beside it.
func (e *Export) Log(local slog.Handler) slog.Handler {
	if e == nil || e.logs == nil {
		return local
	}
	return slog.NewMultiHandler(local, e.logs)
}

// Close sends what is left and ends. It takes no longer than ctx lasts: what is not sent
// then is lost.
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
		all.Go(func() { errs[i] = end(ctx) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		e.log.Warn("telemetry: not all was exported", "err", err)
	}
}

// complaints takes the SDK's errors. While a collector is away there is one each second:
// one a minute is told.
type complaints struct {
	log *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	last time.Time
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.last) >= time.Minute {
		c.last = now
		c.log.Warn("telemetry: not exported", "err", err)
	}
}
