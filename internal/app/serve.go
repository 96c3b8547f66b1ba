package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"weir/internal/lane"
	"weir/internal/relane"
	"weir/internal/residence"
	"weir/internal/settings"
	"weir/internal/telemetry"
)

// Process has the environment variables, the streams and the start time of a process.
type Process struct {
	Env            func(string) string
	Stdout, Stderr io.Writer
	StartedAt      time.Time
}

// Serve serves a Functions host until ctx ends. It writes only log lines of level error to stderr,
// because the host logs each line of stderr as an error. Serve logs each error that it returns. If
// the host must start the process again, the error is a RestartError.
func Serve(ctx context.Context, p Process) error {
	setGCPercent(p.Env)
	limitMemory(p.Env, os.DirFS("/"))
	level := &slog.LevelVar{}
	local := newSeverityHandler(p.Stdout, p.Stderr, level)
	export := telemetry.Open(ctx, p.Env, telemetryBuild(), local)
	defer flushExport(ctx, export)
	log := slog.New(export.Log(local))
	a, err := New(p.Env, log)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			log.Error("handler: wrong setting", "err", line)
		}
		return err
	}

	level.Set(slog.Level(a.settings.Log.Level))
	a.startExport(ctx, export)
	s := newServer(a, p.StartedAt)
	if settings.IsHosted(p.Env) {
		s.host = residence.FindHost(p.Env, log)
		// a write to the stdout of a dead host must not end the process
		signal.Ignore(syscall.SIGPIPE)
	}

	listener, err := listenForHost(ctx, p.Env)
	if err != nil {
		log.Error("handler: cannot listen", "err", err)
		return err
	}

	if s.host != nil {
		defer a.openCrashGuard(openHostMarks(p.Env(settings.HostPortVariable)))()
	}

	log.Info("handler: listening", "duration_ms", time.Since(p.StartedAt).Milliseconds())

	return logEnd(s.Run(ctx, listener), log)
}

// logEnd logs the error that ended a server or the command "weir consume". If the process must be
// started again, logEnd returns a RestartError.
func logEnd(err error, log *slog.Logger) error {
	switch {
	case err == nil:
		return nil
	case needsRestart(err):
		log.Warn("handler: stopped", "err", err)
		return &RestartError{err}
	}

	log.Error("handler: stopped", "err", err)
	return fmt.Errorf("run: %w", err)
}

// RestartError is the error of a process that must be started again. The host, or the service that
// starts the command "weir consume", must not count this error as a failure.
type RestartError struct{ Err error }

func (e *RestartError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RestartError) Unwrap() error { return e.Err }

// needsRestart reports whether the process must be started again. It must be started again in these
// cases:
//   - The number of lanes was changed.
//   - The table was removed or replaced.
//   - The host began to stop, so the process handed its lanes over, but the host did not end.
//   - The store in the folder cannot be used any more.
//
// The errors of lane.IsPermanent are not such a case. The next process would find the same, so the
// host must count a failure.
func needsRestart(err error) bool {
	return errors.Is(err, relane.ErrChanged) || errors.Is(err, lane.ErrReplaced) ||
		errors.Is(err, residence.ErrHostStays) ||
		errors.Is(err, errBroken)
}

// setGCPercent makes garbage collections rarer, unless GOGC is set. The live heap has only a few
// megabytes. With Go's default of 100 percent, collections would take a tenth of the CPU time of a
// burst of messages.
func setGCPercent(env func(string) string) {
	if env("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
