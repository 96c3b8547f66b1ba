package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"weir/internal/weir"
)

// File calls the function "file", which appends a message, and records the call as a span. File is for a message that
// did not arrive by a POST of its own: a message of a schedule, a broker, a batch or the inbox.
//
// The span continues the message's trace. If the message has no trace, the span begins a trace. Before the append, File
// stores the trace context of the span in the message.
func (e *Export) File(ctx context.Context, m *weir.Message, file func(context.Context) error) error {
	if e == nil || e.tracer == nil {
		return file(ctx)
	}
	ctx = w3c.Extract(ctx, propagation.MapCarrier{parentCarrierKey: m.TraceParent, stateCarrierKey: m.TraceState})
	ctx, span := e.tracer.Start(ctx, "file", trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.String("weir.key", m.Key), attribute.String("weir.contract", m.Contract)))
	defer span.End()
	setTraceParent(ctx, m)
	err := file(ctx)
	if err != nil {
		span.SetStatus(codes.Error, "")
	}
	return err
}
