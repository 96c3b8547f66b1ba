package host

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// boundSocket is a socket that is bound to its port but does not listen yet. The host listens only
// after it has started the handler, as the real host does. Until then the bound socket keeps other
// programs from taking the port.
type boundSocket struct {
	fd      int
	address string
}

func bindPort(port int) (*boundSocket, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}

	s := &boundSocket{fd: fd}

	// With SO_REUSEADDR the bind succeeds even if closed connections of an earlier host still
	// occupy the port.
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	}

	var name syscall.Sockaddr
	if err == nil {
		name, err = syscall.Getsockname(fd)
	}

	if err != nil {
		s.closeSocket()
		return nil, os.NewSyscallError("bind", err)
	}

	s.address = fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)

	return s, nil
}

func (s *boundSocket) startListening() (net.Listener, error) {
	if err := syscall.Listen(s.fd, syscall.SOMAXCONN); err != nil {
		s.closeSocket()
		return nil, os.NewSyscallError("listen", err)
	}

	file := os.NewFile(uintptr(s.fd), s.address)
	defer func() { _ = file.Close() }() // the listener has a duplicate of the descriptor
	return net.FileListener(file)
}

func (s *boundSocket) closeSocket() { _ = syscall.Close(s.fd) }
