// Package freeport finds ports for programs that get theirs as an argument.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports that are tried. They lie below those that Linux assigns to listeners on port 0 and to
// outgoing connections (net.ipv4.ip_local_port_range begins at 32768). Otherwise another process
// could get the port before the program for which it was found.
const first, last = 20000, 32767

// Pick returns a port of 127.0.0.1 on which no process listens. It may be called concurrently.
// Two processes may pick the same port, which is unlikely.
func Pick() (int, error) {
	var err error
	for range 100 {
		port := first + rand.IntN(last-first+1)
		var socket net.Listener
		if socket, err = net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, socket.Close()
		}
	}
	return 0, fmt.Errorf("find a port: %w", err)
}
