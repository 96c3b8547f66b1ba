//go:build !linux

package host

import (
	"fmt"
	"net"
)

// socket listens from the start: to take a port without listening is written for Linux only.
type socket struct {
	net.Listener
	address string
}

func bindPort(port int) (*socket, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	return &socket{l, l.Addr().String()}, nil
}

func (s *socket) listen() (net.Listener, error) { return s.Listener, nil }

func (s *socket) close() { _ = s.Close() }
