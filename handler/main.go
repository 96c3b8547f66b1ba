// Command handler is Weir's custom handler: the Functions host starts it, tells it a port
// by FUNCTIONS_CUSTOMHANDLER_PORT, and sends it every trigger over HTTP.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := realMain(ctx); err != nil {
		os.Exit(1) // never 0: the host would not start us again; never 200: it would not count it
	}
}

// realMain runs the program. What is wrong goes to stdout: the host takes every line of
// stderr for an error of its own.
func realMain(ctx context.Context) error {
	if os.Getenv("GOGC") == "" {
		// What lives is a few megabytes: collecting at each doubling of that would take a
		// tenth of the time of a burst to save memory nobody needs.
		debug.SetGCPercent(400)
	}
	if len(os.Args) > 1 && os.Args[1] == "lanes" {
		return lanesCommand(ctx, os.Args[2:], os.Getenv, os.Stdout)
	}
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	program, err := NewProgram(os.Getenv, log)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			log.Error("handler: wrong setting", "err", line)
		}
		return err
	}
	listener, err := listen(os.Getenv)
	if err != nil {
		log.Error("handler: cannot listen", "err", err)
		return err
	}
	if err := program.Run(ctx, listener); err != nil {
		log.Error("handler: stopped", "err", err)
		return fmt.Errorf("run: %w", err)
	}
	return nil
}
