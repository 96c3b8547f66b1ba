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

// Sender returns a sender that records two spans for each attempt in the message's trace. The span "wait" lasts from
// the earliest possible start of the attempt to its actual start. The span "deliver" follows. If the attempt is a chain
// of requests, "deliver" has a child span for each request. The CMS receives the trace context of "deliver". The
// parameters "method" and "address" come from the settings. If e exports no traces, Sender returns "next".
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

// schemePorts has the default port of each scheme.
var schemePorts = map[string]string{"http": "80", "https": "443"}

type sender struct {
	next   drain.Sender
	tracer trace.Tracer
	now    func() time.Time
	fixed  []attribute.KeyValue // attributes that all attempts have

	mu    sync.Mutex
	ended map[weir.ID]time.Time // by message: end of the last attempt if its outcome was unavailable
}

// maxEnded limits the entries of the map "ended". If the entry of a message is missing, the next span "wait" of the
// message begins too early.
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
	defer span.End() // deferred, because the attempt may panic
	m := *d.Message
	setTraceParent(ctx, &m)
	d.Message = &m
	r := s.next.Send(ctx, d)
	s.recordSteps(ctx, r.Steps)
	s.rememberEnd(d, r)
	if span.IsRecording() {
		describeResult(span, d, r)
	}
	return r
}

// recordSteps records a span for each request of a chain.
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

// The names under which w3c reads and writes the parts of a trace context.
const parentCarrierKey, stateCarrierKey = "traceparent", "tracestate"

// setTraceParent writes the span of ctx into m as the parent of later spans.
func setTraceParent(ctx context.Context, m *weir.Message) {
	c := propagation.MapCarrier{}
	w3c.Inject(ctx, c)
	m.TraceParent, m.TraceState = c[parentCarrierKey], c[stateCarrierKey]
}

// recordWait records the span "wait", and returns the context in which the span "deliver" starts. If the message has a
// trace, recordWait returns the context "parent". Otherwise the span "wait" begins a trace, and recordWait returns the
// context of that span.
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

// waitedSince returns the earliest possible start of the attempt. It never returns a time after the actual start,
// "began", even if the clocks of processes differ.
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

// rememberEnd stores the end of an attempt in the map "ended" if the outcome is unavailable, because the message has no
// record of such an attempt. After any other outcome it removes the entry of the message.
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

// describeResult writes the attempt's result into a span. It leaves out the CMS's text, because that text may repeat
// the message.
func describeResult(span trace.Span, d weir.Delivery, r weir.Result) {
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
