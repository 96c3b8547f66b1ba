package freeport_test

import (
	"net"
	"testing"

	"weir/tools/freeport"
)

func TestPick(t *testing.T) {
	t.Parallel()
	var listeners []net.Listener
	taken := map[int]bool{}
	for range 200 {
		port, err := freeport.Pick()
		if err != nil || port < 20000 || port > 32767 || taken[port] {
			t.Fatalf("got %d, taken %v: %v, want a free port of 20000 to 32767", port,
				taken[port], err)
		}

		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			continue // another process listens on the port now
		}

		listeners, taken[port] = append(listeners, l), true
	}

	for _, l := range listeners {
		l.Close()
	}
}
