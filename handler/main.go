// Command handler is Weir's custom handler: the Functions host starts it, tells it a port
// by FUNCTIONS_CUSTOMHANDLER_PORT, and sends it every trigger over HTTP. Its subcommands
// are for people, and for places that have no triggers.
package main

import (
	"context"
	"errors"
	"fmt"
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

func main() {
	sh := &shell{env: os.Getenv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, started: time.Now(),
		firstWait: 500 * time.Millisecond, look: 2 * time.Second, grace: 5 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := sh.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// serve runs the program for a Functions host. Only log lines of level Error go to stderr: the host
// logs each line of stderr as an error, and prints the last ones when the process ends. The exit code
// is never 0, because the host would not start the program again.
func (s *shell) serve(ctx context.Context) error {
	collectLess(s.env)
	limitMemory(s.env, os.DirFS("/"))
	level := &slog.LevelVar{}
	local := newBySeverity(s.stdout, s.stderr, level)
	export := telemetry.Open(ctx, s.env, buildOf(), local)
	defer flush(ctx, export)
	log := slog.New(export.Log(local))
	program, err := NewProgram(s.env, log)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			log.Error("handler: wrong setting", "err", line)
		}
		return err
	}
	level.Set(slog.Level(program.settings.Log.Level))
	program.began = s.started
	program.exportTo(ctx, export)
	if s.env(hostPort) != "" {
		program.host = newHostWatcher(s.env, log)
		signal.Ignore(syscall.SIGPIPE) // a host that is gone takes stdout with it, and the lanes are still to be handed over
	}
	listener, err := listen(s.env)
	if err != nil {
		log.Error("handler: cannot listen", "err", err)
		return err
	}
	log.Info("handler: listening", "duration", time.Since(s.started))
	return endOf(program.Run(ctx, listener), log)
}

// endOf logs why the program has ended, and returns the error from which the exit code follows.
func endOf(err error, log *slog.Logger) error {
	switch {
	case err == nil:
		return nil
	case wantsRestart(err):
		log.Warn("handler: stopped", "err", err)
		return &restart{err}
	}
	log.Error("handler: stopped", "err", err)
	return fmt.Errorf("run: %w", err)
}

// restart is the end of a process that the host is to start again. The host counts no error for it.
type restart struct{ error }

func (r *restart) Unwrap() error { return r.error }

// wantsRestart reports whether a process that served is to be started anew: the lanes it began with
// are no longer there, or it handed its lanes over to let its host stop, and the host goes on. It is
// not so if the very start finds another number of lanes: the next start would find the same, so the
// host must count it.
func wantsRestart(err error) bool {
	return errors.Is(err, relane.ErrChanged) || errors.Is(err, lane.ErrBegunAnew) || errors.Is(err, errHostStays)
}

// collectLess makes garbage collections rarer: what lives is a few megabytes, and collecting
// at each doubling of that would take a tenth of the time of a burst to save memory nobody
// needs.
func collectLess(env func(string) string) {
	if env("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
