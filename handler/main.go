// Command handler is Weir's custom handler. The Functions host starts the handler with a port in
// the variable FUNCTIONS_CUSTOMHANDLER_PORT, and sends each trigger over HTTP to that port. The
// handler also has commands, for operators and for systems without a Functions host.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"weir/internal/cli"
)

func main() {
	startedAt := time.Now()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, func(ctx context.Context) int { return cli.Run(ctx, os.Args[1:], startedAt) })
	stop()
	os.Exit(code)
}
