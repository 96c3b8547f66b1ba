package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/trace"
)

// TraceIDKey is the log key with the id of a message's trace. If a record has this key and was
// logged without an active span, it is exported as part of that trace.
const TraceIDKey = "trace_id"

// exported sends log records to the collector. It is enabled at the same levels as the field local.
type exported struct {
	slog.Handler
	local slog.Handler
}

func newLogs(p log.LoggerProvider, local slog.Handler) slog.Handler {
	return exported{otelslog.NewHandler(scope, otelslog.WithLoggerProvider(p)), local}
}

// Enabled implements slog.Handler.
func (h exported) Enabled(ctx context.Context, level slog.Level) bool {
	return h.local.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h exported) WithAttrs(attrs []slog.Attr) slog.Handler {
	return exported{h.Handler.WithAttrs(attrs), h.local}
}

// WithGroup implements slog.Handler.
func (h exported) WithGroup(name string) slog.Handler {
	return exported{h.Handler.WithGroup(name), h.local}
}

// Handle implements slog.Handler.
func (h exported) Handle(ctx context.Context, r slog.Record) error {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		r.Attrs(func(a slog.Attr) bool {
			id, err := trace.TraceIDFromHex(a.Value.String())
			if a.Key != TraceIDKey || err != nil {
				return true
			}

			ctx = trace.ContextWithSpanContext(ctx,
				trace.NewSpanContext(trace.SpanContextConfig{TraceID: id}))
			return false
		})
	}

	return h.Handler.Handle(ctx, r)
}
