package app

import (
	"context"
	"io"
	"log/slog"
)

// severityHandler writes lines of level error to stderr, and all other lines to stdout. A Functions
// host ignores the level in a line. It logs each line of stdout as Information, and each line of
// stderr as Error.
type severityHandler struct{ stdout, stderr slog.Handler }

func newSeverityHandler(stdout, stderr io.Writer, level slog.Leveler) severityHandler {
	options := &slog.HandlerOptions{Level: level}
	return severityHandler{slog.NewJSONHandler(stdout, options),
		slog.NewJSONHandler(stderr, options)}
}

// Enabled implements slog.Handler.
func (h severityHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.stdout.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h severityHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		return h.stderr.Handle(ctx, r)
	}
	return h.stdout.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h severityHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return severityHandler{h.stdout.WithAttrs(attrs), h.stderr.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h severityHandler) WithGroup(name string) slog.Handler {
	return severityHandler{h.stdout.WithGroup(name), h.stderr.WithGroup(name)}
}
