//go:build !linux

package host

import (
	"fmt"
	"net"
)

// boundSocket listens from the start. Only the Linux implementation can reserve a port without
// listening.
type boundSocket struct {
	net.Listener
	address string
}

func bindPort(port int) (*boundSocket, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	return &boundSocket{l, l.Addr().String()}, nil
}

func (s *boundSocket) startListening() (net.Listener, error) { return s.Listener, nil }

func (s *boundSocket) closeSocket() { _ = s.Close() }
