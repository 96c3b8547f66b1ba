package telemetry

import (
	"cmp"
	"context"
	"net/url"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"weir/internal/drain"
	"weir/internal/weir"
)

// Sender returns a sender that records two spans for each attempt in the message's trace. The span "wait"
// lasts from the earliest possible start of the attempt to its start, and the span "deliver" follows. The CMS
// receives the trace context of "deliver". Method and address are those of the settings.
func (e *Export) Sender(next drain.Sender, method, address string) drain.Sender {
	if e == nil || e.tracer == nil {
		return next
	}
	s := &sender{next: next, tracer: e.tracer, now: time.Now,
		fixed: []attribute.KeyValue{semconv.HTTPRequestMethodKey.String(method)}, ended: map[weir.ID]time.Time{}}
	if u, err := url.Parse(address); err == nil {
		s.fixed = append(s.fixed, semconv.URLScheme(u.Scheme), semconv.ServerAddress(u.Hostname()))
		if port, err := strconv.Atoi(cmp.Or(u.Port(), schemePorts[u.Scheme])); err == nil {
			s.fixed = append(s.fixed, semconv.ServerPort(port))
		}
	}
	return s
}

// schemePorts are the default ports by scheme.
var schemePorts = map[string]string{"http": "80", "https": "443"}

type sender struct {
	next   drain.Sender
	tracer trace.Tracer
	now    func() time.Time
	fixed  []attribute.KeyValue // of every attempt

	mu    sync.Mutex
	ended map[weir.ID]time.Time // when attempts without a stored record ended
}

// maxEnded limits the entries of ended. If an entry is missing, the next wait span begins too early.
const maxEnded = 1000

// Send implements drain.Sender.
func (s *sender) Send(ctx context.Context, d weir.Delivery) weir.Result {
	began := s.now()
	parent := w3c.Extract(ctx, propagation.MapCarrier{parentCarrierKey: d.Message.TraceParent,
		stateCarrierKey: d.Message.TraceState})
	common := append(messageAttributes(d.Message.Public(), d.Message.ID), attribute.String("weir.key", d.Message.Key),
		attribute.String("weir.contract", d.Message.Contract), attribute.Int("weir.attempt", d.Attempt))
	parent = s.recordWait(parent, d, began, common)
	ctx, span := s.tracer.Start(parent, "deliver", trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began),
		trace.WithAttributes(common...), trace.WithAttributes(s.fixed...))
	defer span.End() // also if the attempt panics
	m := *d.Message
	belongTo(ctx, &m)
	d.Message = &m
	r := s.next.Send(ctx, d)
	s.recordSteps(ctx, r.Steps)
	s.rememberEnd(d, r)
	if span.IsRecording() {
		endSpan(span, d, r)
	}
	return r
}

// recordSteps makes a span of each request of a chain.
func (s *sender) recordSteps(ctx context.Context, steps []weir.Step) {
	for _, step := range steps {
		_, span := s.tracer.Start(ctx, "step "+step.Name, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithTimestamp(step.At), trace.WithAttributes(s.fixed[1:]...))
		if step.Status != 0 {
			span.SetAttributes(semconv.HTTPResponseStatusCode(step.Status))
		}
		span.End(trace.WithTimestamp(step.At.Add(step.Duration)))
	}
}

// The headers that propagators read.
const parentCarrierKey, stateCarrierKey = "traceparent", "tracestate"

// belongTo sets the message's trace context to the context's span.
func belongTo(ctx context.Context, m *weir.Message) {
	c := propagation.MapCarrier{}
	w3c.Inject(ctx, c)
	m.TraceParent, m.TraceState = c[parentCarrierKey], c[stateCarrierKey]
}

// recordWait records the span before the attempt. It returns the parent's context. If the message has no trace,
// it returns the context of the new span, which is then the root.
func (s *sender) recordWait(parent context.Context, d weir.Delivery, began time.Time,
	attrs []attribute.KeyValue) context.Context {
	ctx, span := s.tracer.Start(parent, "wait", trace.WithTimestamp(s.waitedSince(d, began)),
		trace.WithAttributes(attrs...))
	span.End(trace.WithTimestamp(began))
	if trace.SpanContextFromContext(parent).IsValid() {
		return parent
	}
	return ctx
}

// waitedSince returns the earliest possible start of the attempt. It is never after the actual start,
// even if the clocks of processes differ.
func (s *sender) waitedSince(d weir.Delivery, began time.Time) time.Time {
	s.mu.Lock()
	since := s.ended[d.Message.ID]
	s.mu.Unlock()
	if d.Since.After(since) {
		since = d.Since
	}
	if since.IsZero() || since.After(began) {
		return began
	}
	return since
}

// rememberEnd keeps the end of an attempt with the outcome unavailable, because its message does not record it.
func (s *sender) rememberEnd(d weir.Delivery, r weir.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Outcome != weir.OutcomeUnavailable {
		delete(s.ended, d.Message.ID)
		return
	}
	if len(s.ended) >= maxEnded {
		clear(s.ended)
	}
	s.ended[d.Message.ID] = s.now()
}

// endSpan sets the attempt's result on a span, without the CMS's words, because they may repeat the
// message.
func endSpan(span trace.Span, d weir.Delivery, r weir.Result) {
	span.SetAttributes(attribute.String("weir.outcome", string(r.Outcome)), attribute.Int64("weir.fence", d.Fence),
		semconv.HTTPRequestBodySize(d.Message.Size))
	if d.Attempt > 1 {
		span.SetAttributes(semconv.HTTPRequestResendCount(d.Attempt - 1))
	}
	kind, words := string(r.Outcome), r.Reason
	if r.Status != 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(r.Status))
		kind, words = strconv.Itoa(r.Status), ""
	}
	if r.Outcome != weir.OutcomeDelivered {
		span.SetAttributes(semconv.ErrorTypeKey.String(kind))
		span.SetStatus(codes.Error, words)
	}
}
