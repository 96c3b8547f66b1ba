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
	"weir/internal/telemetry"
)

// Process is the environment that a process starts in.
type Process struct {
	Env            func(string) string
	Stdout, Stderr io.Writer
	StartedAt      time.Time
}

// Serve serves a Functions host until ctx ends. Only log lines of level error go to stderr, because the host logs each
// line of stderr as an error, and prints the last lines of stderr when the process ends. Serve logs the reason of each
// error. If the host must start the process again, the error is a RestartError.
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
	if IsHosted(p.Env) {
		s.host = newHostWatcher(p.Env, log)
		signal.Ignore(syscall.SIGPIPE) // the host's end closes stdout, and the process must still hand its lanes over
	}
	listener, err := listenForHost(p.Env)
	if err != nil {
		log.Error("handler: cannot listen", "err", err)
		return err
	}
	log.Info("handler: listening", "duration_ms", time.Since(p.StartedAt).Milliseconds())
	return logEnd(s.Run(ctx, listener), log)
}

// logEnd logs the error with which a server or weir consume has ended, and returns the error of the process.
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

// RestartError ends a process that must be started again. The host, or the service that starts weir consume, must not
// count this end as a failure.
type RestartError struct{ Err error }

func (e *RestartError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RestartError) Unwrap() error { return e.Err }

// needsRestart reports whether the process must be started again. This is so if its epoch is over, or if its table is
// gone. It is also so if the process handed its lanes over because the host began to stop, but the host did not end. A
// process that finds a wrong number of lanes at its start needs no restart: the next process would find the same
// number, so the host must count the failure.
func needsRestart(err error) bool {
	return errors.Is(err, relane.ErrChanged) || errors.Is(err, lane.ErrReplaced) || errors.Is(err, errHostStays)
}

// setGCPercent makes garbage collections rarer, unless GOGC is set. The live heap is a few megabytes. Go's default is a
// collection each time that the heap has doubled, which would take a tenth of the CPU time of a burst.
func setGCPercent(env func(string) string) {
	if env("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
