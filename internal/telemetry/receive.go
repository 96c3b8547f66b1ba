package telemetry

import (
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"weir/internal/httpio"
	"weir/internal/weir"
)

// w3c reads and writes trace contexts in the W3C format: the headers traceparent and tracestate.
var w3c propagation.TraceContext

// Receive returns a handler that calls next within a span for each request. If the request has a
// trace context, the span continues the upstream's trace. Receive replaces the request's trace
// context with the span's trace context, and the message stores the latter. So the spans of the
// message's waits and attempts are children of the request's span.
//
// If e exports no traces, Receive returns next.
func (e *Export) Receive(route string, next http.Handler) http.Handler {
	if e == nil || e.tracer == nil {
		return next
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers := propagation.HeaderCarrier(r.Header)
		ctx, span := e.tracer.Start(w3c.Extract(r.Context(), headers), r.Method+" "+route,
			trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(semconv.HTTPRequestMethodKey.String(r.Method),
				semconv.HTTPRoute(route),
				semconv.URLScheme(httpio.Scheme(r)), semconv.URLPath(r.URL.Path)))

		// the status if next panics
		rec := &recorder{ResponseWriter: w, status: http.StatusInternalServerError}
		defer func() {
			if span.IsRecording() {
				span.SetAttributes(
					append(filedAttributes(w.Header()), semconv.HTTPResponseStatusCode(rec.status))...)
			}

			if rec.status >= http.StatusInternalServerError {
				span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(rec.status)))
				span.SetStatus(codes.Error, "")
			}

			span.End()
		}()

		r = r.WithContext(ctx)
		r.Header = r.Header.Clone()

		// w3c.Inject sets this header again if the request's traceparent was valid
		r.Header.Del(stateCarrierKey)
		w3c.Inject(ctx, propagation.HeaderCarrier(r.Header))
		next.ServeHTTP(rec, r)
	})
}

// filedAttributes returns the attributes of the message that the answer's header Location names. It
// returns nil if the answer names no message, for example after a refusal.
func filedAttributes(h http.Header) []attribute.KeyValue {
	location := h.Get("Location")
	id, err := weir.ParseID(location[strings.LastIndexByte(location, '/')+1:])
	if err != nil {
		return nil
	}
	return messageAttributes(id, id)
}

// messageAttributes returns the attributes of a message: public is the id that callers know, and at
// has the message's lane and sequence number.
func messageAttributes(public, at weir.ID) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("weir.message_id", public.String()),
		attribute.Int("weir.lane", at.Lane), attribute.Int64("weir.sequence", at.Seq)}
}

type recorder struct {
	http.ResponseWriter
	status int
	wrote  bool
}

// Unwrap lets http.ResponseController find the interfaces that the recorder does not implement.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(status int) {
	if !r.wrote {
		r.status, r.wrote = status, true
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if !r.wrote {
		r.WriteHeader(http.StatusOK)
	}
	return r.ResponseWriter.Write(p)
}
