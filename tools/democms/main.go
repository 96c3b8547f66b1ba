// Command democms is a small CMS with the fault that Weir works around: two concurrent writes to
// one path can create two items.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"weir/internal/democms"
	"weir/internal/loopback"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serveUntilDone(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cms:", err)
		os.Exit(1)
	}
}

func serveUntilDone(ctx context.Context) error {
	port := flag.Int("port", 7072, "port on 127.0.0.1")
	latency := flag.Duration("latency", 20*time.Millisecond,
		"time between looking an item up and writing it")
	jitter := flag.Duration("jitter", 5*time.Millisecond,
		"largest random time that each write takes beyond -latency")
	flag.Parse()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		return fmt.Errorf("port %d is taken (or may not be bound): %w", *port, err)
	}

	cms := democms.New(*latency, *jitter)
	web := &http.Server{Handler: loopback.Guard(cms), ReadHeaderTimeout: 10 * time.Second}
	fmt.Printf("cms: http://%s/  (POST /api/content, GET /stats, POST /faults)\n", listener.Addr())
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()

	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}

	limited, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := web.Shutdown(limited); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}

	return web.Close()
}
