// Package hostwatch notices that the Functions host which started this process stops, or is gone.
//
// A host that stops sends its handler no signal. It closes its listening socket, waits
// until all HTTP requests have ended, waits at most ten seconds for invocations of queues and timers,
// and kills the handler. If the invocations take longer, or the host dies, the handler stays behind
// without a parent. On Linux the handler can notice the closed socket as well as the lost parent:
//
//   - The handler is the host's child, so /proc/<parent>/fd names the host's sockets, and
//     /proc/<parent>/net/tcp and tcp6 list those that listen. Once a socket is found, one readlink
//     shows whether it is still open.
//   - The parent's id changes when the parent ends. (The kernel's parent-death signal is of no use,
//     because the kernel sends it when the thread that started the child ends.)
//
// # Which socket
//
// The host listens on other sockets, too, and begins to listen only after the handler has started.
// The ports are in the host's environment, which the handler inherits, or in the host's command line.
// If the host listens on none of these ports, the watch takes all sockets that other machines can
// reach, or all sockets if there are no such ones. The host counts as stopping when the last watched
// socket is closed, because a host that closes only some of them continues. A restart of the script
// host, which is a part of the host's process, leaves the sockets open.
package hostwatch
