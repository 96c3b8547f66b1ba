package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"weir/internal/clock"
	"weir/internal/settings"
)

const (
	// portPatience is the time for which a handler waits for its port. The host picks a free port
	// and releases it for the handler. Meanwhile a connection of another process can take the port.
	// The host waits 30 s for the handler to listen, but ends for good after the handler has ended
	// three times.
	portPatience = 20 * time.Second
	// portPause is the time between two tries.
	portPause = 50 * time.Millisecond
)

// listenForHost listens on the port that the host has chosen. If another process has the port, it
// tries again. Without a host, it listens on any free port.
func listenForHost(ctx context.Context, env func(string) string) (net.Listener, error) {
	port := env(settings.HostPortVariable)
	if port == "" {
		port = "0"
	}

	address := net.JoinHostPort("127.0.0.1", port)
	return awaitPort(ctx, func() (net.Listener, error) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listen on port %s: %w", port, err)
		}
		return l, nil
	})
}

// awaitPort calls listen until it succeeds. It returns the error if ctx ends, if portPatience is
// over, or if no system call has failed: then the port is no number, and stays so.
func awaitPort(ctx context.Context, listen func() (net.Listener, error)) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, portPatience)
	defer cancel()

	for {
		l, err := listen()
		if err == nil {
			return l, nil
		}

		var call *os.SyscallError
		if !errors.As(err, &call) || !clock.Sleep(ctx, portPause) {
			return nil, err
		}
	}
}
