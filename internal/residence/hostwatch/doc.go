// Package hostwatch notices when the Functions host stops or ends. The host has started this
// process as its handler.
//
// A host that stops sends its handler no signal. It closes its listening socket, and waits until
// all HTTP requests have ended. Then it waits at most ten seconds for invocations of queues and
// timers. If they end in this time, the host kills the handler. If they take longer, or if the host
// dies, the handler stays behind without a parent. On Linux the handler can notice the closed
// socket and the lost parent:
//
//   - The handler is the host's child, so /proc/<parent>/fd names the host's sockets. The files
//     /proc/<parent>/net/tcp and tcp6 list the listening sockets. After a socket is found, one
//     readlink shows whether the socket is still open.
//   - The id of the handler's parent changes when the host ends. The kernel's parent-death signal
//     is of no use, because the kernel sends it at the end of the thread that started the child.
//
// # Which socket
//
// The host listens on several sockets, and begins to listen only after the handler has started. The
// ports for requests are in the host's environment, which the handler inherits, or in the host's
// command line. If the host listens on none of these ports, the watch takes all sockets that other
// machines can reach. If there is no such socket, the watch takes all sockets.
//
// A host that closes only some of its sockets continues. So the host counts as stopping when it has
// closed the last watched socket. The script host is a part of the host's process, and a restart of
// the script host leaves the sockets open.
package hostwatch
