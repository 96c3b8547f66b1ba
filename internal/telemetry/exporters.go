package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	logsdk "go.opentelemetry.io/otel/sdk/log"
	metricsdk "go.opentelemetry.io/otel/sdk/metric"
	tracesdk "go.opentelemetry.io/otel/sdk/trace"
)

// The supported protocols of OTLP, the OpenTelemetry protocol. The exporters read endpoints,
// headers, certificates, compression and timeouts from the environment.
const (
	httpProtobuf = "http/protobuf"
	grpcProtocol = "grpc"
)

// newSpanExporter, newMetricExporter and newLogExporter return nil if the protocol is empty.
func newSpanExporter(ctx context.Context, protocol string) (tracesdk.SpanExporter, error) {
	switch protocol {
	case httpProtobuf:
		return otlptracehttp.New(ctx)
	case grpcProtocol:
		return otlptracegrpc.New(ctx)
	}
	return nil, nil
}

func newMetricExporter(ctx context.Context, protocol string) (metricsdk.Exporter, error) {
	switch protocol {
	case httpProtobuf:
		return otlpmetrichttp.New(ctx)
	case grpcProtocol:
		return otlpmetricgrpc.New(ctx)
	}
	return nil, nil
}

func newLogExporter(ctx context.Context, protocol string) (logsdk.Exporter, error) {
	switch protocol {
	case httpProtobuf:
		return otlploghttp.New(ctx)
	case grpcProtocol:
		return otlploggrpc.New(ctx)
	}
	return nil, nil
}
