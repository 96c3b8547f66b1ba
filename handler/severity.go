package main

import (
	"context"
	"io"
	"log/slog"
)

// bySeverity writes lines of level error to stderr and all others to stdout. The stream is the only
// severity that a host understands: it passes on a line of stdout as Information and one of stderr as
// Error, whatever the line says.
type bySeverity struct{ stdout, stderr slog.Handler }

func newBySeverity(stdout, stderr io.Writer, level slog.Leveler) bySeverity {
	options := &slog.HandlerOptions{Level: level}
	return bySeverity{slog.NewJSONHandler(stdout, options), slog.NewJSONHandler(stderr, options)}
}

// Enabled implements slog.Handler.
func (b bySeverity) Enabled(ctx context.Context, level slog.Level) bool {
	return b.stdout.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (b bySeverity) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		return b.stderr.Handle(ctx, r)
	}
	return b.stdout.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (b bySeverity) WithAttrs(attrs []slog.Attr) slog.Handler {
	return bySeverity{b.stdout.WithAttrs(attrs), b.stderr.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (b bySeverity) WithGroup(name string) slog.Handler {
	return bySeverity{b.stdout.WithGroup(name), b.stderr.WithGroup(name)}
}
