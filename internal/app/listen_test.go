package app

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/settings"
)

var errTaken = &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}

// A connection of another process has the port that the host has chosen. The handler listens as
// soon as the port is free: three handlers that end would end the host.
func TestListenForHost_PortIsTaken(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	port := strconv.Itoa(other.Addr().(*net.TCPAddr).Port)
	tries := 0
	env := func(name string) string {
		if name == settings.HostPortVariable {
			return port
		}
		return ""
	}

	first, err := awaitPort(t.Context(), func() (net.Listener, error) {
		if tries++; tries == 3 {
			other.Close()
		}
		return net.Listen("tcp", other.Addr().String())
	})
	if err != nil || tries < 3 {
		t.Fatalf("got %v after %d tries, want a listener after 3", err, tries)
	}

	first.Close()
	l, err := listenForHost(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, got, _ := net.SplitHostPort(l.Addr().String()); got != port {
		t.Errorf("got port %s, want %s", got, port)
	}
}

func TestAwaitPort(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		freeAfter time.Duration // 0 = never
		err       error
		stop      time.Duration
		want      time.Duration
		succeeds  bool
	}{
		"FreeAtOnce": {freeAfter: time.Nanosecond, err: errTaken, want: portPause,
			succeeds: true},
		"FreeAfter19s": {freeAfter: 19 * time.Second, err: errTaken, want: 19 * time.Second,
			succeeds: true},
		"StaysTaken":     {err: errTaken, want: portPatience},
		"NoPort":         {err: errors.New("invalid port"), want: 0},
		"ProcessIsEnded": {err: errTaken, stop: time.Second, want: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(c.stop, time.Hour))
				defer cancel()
				began := time.Now()
				_, err := awaitPort(ctx, func() (net.Listener, error) {
					if c.freeAfter > 0 && time.Since(began) >= c.freeAfter {
						return nil, nil
					}
					return nil, c.err
				})

				took := time.Since(began)
				if (err == nil) != c.succeeds || took < c.want || took > c.want+portPause {
					t.Errorf("got %v after %s, want success: %t after %s", err, took,
						c.succeeds, c.want)
				}
			})
		})
	}
}
