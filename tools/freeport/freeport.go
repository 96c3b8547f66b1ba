// Package freeport finds ports for programs that are told theirs before they listen.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports that are tried, below those that Linux gives to whoever asks for any
// (net.ipv4.ip_local_port_range begins at 32768): else somebody who does so, or only
// connects to something, could take the port before the program that it was found for.
const first, last = 20000, 32767

// Pick gives a port of 127.0.0.1 on which nobody listens at the moment. It may be called
// concurrently; that two processes pick the same one is hardly likely, and possible.
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
