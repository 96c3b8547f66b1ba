// Package freeport finds free TCP ports, for programs that take their port as an argument.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Pick tries random ports between first and last. If a program names no port, Linux chooses one
// from 32768 on (net.ipv4.ip_local_port_range). So Linux does not give a picked port to another
// program that names no port.
const first, last = 20000, 32767

// Pick returns a TCP port of 127.0.0.1 on which no process listens, or an error after 100 tries.
// Safe for concurrent use. Pick does not reserve the port, so two calls can return the same port,
// which is unlikely.
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
