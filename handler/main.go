// Command handler is Weir's custom handler. The Functions host starts it, passes it a port in
// FUNCTIONS_CUSTOMHANDLER_PORT, and sends it every trigger over HTTP. The handler's commands are for operators, and
// for systems without a Functions host.
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
	code := cli.Run(ctx, os.Args[1:], startedAt)
	stop()
	os.Exit(code)
}
