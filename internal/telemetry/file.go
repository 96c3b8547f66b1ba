package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"weir/internal/weir"
)

// File calls the function "file", which appends a message, and records the call as a span. File is
// for a message that did not arrive by a POST of its own: a message of a schedule, a broker, a
// batch or the inbox.
//
// The span continues the message's trace. If the message has no trace, the span begins a trace.
// Before the append, File stores the trace context of the span in the message.
func (e *Export) File(ctx context.Context, m *weir.Message,
	file func(context.Context) error) (err error) {
	if e == nil || e.tracer == nil {
		return file(ctx)
	}
	ctx, span := e.beginFile(ctx, m)
	defer func() { endFile(span, err) }()
	return file(ctx)
}

// FileAll is File for messages that one call of the function "file" appends. The function returns
// an error for each message; nil = it was appended. Each message has a span of its own.
func (e *Export) FileAll(ctx context.Context, messages []*weir.Message,
	file func(context.Context) []error) {
	if e == nil || e.tracer == nil {
		file(ctx)
		return
	}

	spans := make([]trace.Span, len(messages))
	for i, m := range messages {
		_, spans[i] = e.beginFile(ctx, m)
	}

	for i, err := range file(ctx) {
		endFile(spans[i], err)
	}
}

// beginFile begins the span of an append, and stores its trace context in the message.
func (e *Export) beginFile(ctx context.Context, m *weir.Message) (context.Context, trace.Span) {
	ctx = w3c.Extract(ctx, propagation.MapCarrier{parentCarrierKey: m.TraceParent,
		stateCarrierKey: m.TraceState})
	ctx, span := e.tracer.Start(ctx, "file", trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.String("weir.key", m.Key),
			attribute.String("weir.contract", m.Contract)))
	setTraceParent(ctx, m)
	return ctx, span
}

func endFile(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
