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

// Sender returns a sender that records two spans in the message's trace for each attempt. The span
// "wait" lasts from the earliest possible start of the attempt to its actual start. The span
// "deliver" lasts from the actual start to the end of the attempt. If the attempt is a chain,
// "deliver" has a child span for each request. The CMS receives the trace context of "deliver".
//
// The parameters method and address are the CMS's method and address in the settings. If e exports
// no traces, Sender returns next.
func (e *Export) Sender(next drain.Sender, method, address string) drain.Sender {
	if e == nil || e.tracer == nil {
		return next
	}

	s := &sender{next: next, tracer: e.tracer, now: time.Now,
		fixed: []attribute.KeyValue{semconv.HTTPRequestMethodKey.String(method)},
		ended: map[weir.ID]time.Time{}}

	if u, err := url.Parse(address); err == nil {
		s.fixed = append(s.fixed, semconv.URLScheme(u.Scheme), semconv.ServerAddress(u.Hostname()))
		if port, err := strconv.Atoi(cmp.Or(u.Port(), schemePorts[u.Scheme])); err == nil {
			s.fixed = append(s.fixed, semconv.ServerPort(port))
		}
	}

	return s
}

var schemePorts = map[string]string{"http": "80", "https": "443"}

type sender struct {
	next   drain.Sender
	tracer trace.Tracer
	now    func() time.Time
	fixed  []attribute.KeyValue // attributes that all attempts have

	mu sync.Mutex
	// by message: end of the last attempt, if the outcome was unavailable
	ended map[weir.ID]time.Time
}

// maxEnded limits the entries of sender.ended. If the entry of a message is missing, the message's
// next span "wait" begins too early.
const maxEnded = 1000

// Send implements drain.Sender.
func (s *sender) Send(ctx context.Context, d weir.Delivery) weir.Result {
	began := s.now()
	parent := w3c.Extract(ctx, propagation.MapCarrier{parentCarrierKey: d.Message.TraceParent,
		stateCarrierKey: d.Message.TraceState})
	common := append(messageAttributes(d.Message.Public(), d.Message.ID),
		attribute.String("weir.key", d.Message.Key),
		attribute.String("weir.contract", d.Message.Contract),
		attribute.Int("weir.attempt", d.Attempt))

	parent = s.recordWait(parent, d, began, common)
	ctx, span := s.tracer.Start(parent, "deliver", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(began),
		trace.WithAttributes(common...), trace.WithAttributes(s.fixed...))
	defer span.End() // deferred, because next.Send can panic
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

// The headers of a W3C trace context.
const parentCarrierKey, stateCarrierKey = "traceparent", "tracestate"

// setTraceParent writes the trace context of ctx into m. Later spans of m are then children of the
// span of ctx.
func setTraceParent(ctx context.Context, m *weir.Message) {
	c := propagation.MapCarrier{}
	w3c.Inject(ctx, c)
	m.TraceParent, m.TraceState = c[parentCarrierKey], c[stateCarrierKey]
}

// recordWait records the span "wait", and returns the context for the span "deliver". If the
// message has a trace, this context is the parameter parent. If not, "wait" begins a trace, and
// "deliver" becomes a child of "wait".
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

// waitedSince returns the earliest possible start of the attempt. The parameter began is its actual
// start. The result is never later than began, even if the clocks of processes differ.
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

// rememberEnd stores the end of an attempt whose outcome is unavailable, because the stored message
// has no record of such an attempt. After any other outcome, rememberEnd removes the message's
// entry.
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

// describeResult writes the attempt's result into the span, but not the text of the CMS's answer.
// That text can repeat parts of the message.
func describeResult(span trace.Span, d weir.Delivery, r weir.Result) {
	span.SetAttributes(attribute.String("weir.outcome", string(r.Outcome)),
		attribute.Int64("weir.fence", d.Fence), semconv.HTTPRequestBodySize(d.Message.Size))
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
