// Package hostwatch notices that the Functions host which started this process stops, or is gone.
//
// A host that is told to stop sends its handler no signal. It closes its listening socket, waits
// for HTTP requests to their end and for invocations of queues and timers for ten seconds, and kills
// the handler. A host that has waited ten seconds in vain, or dies, leaves the handler behind without
// a parent. On Linux the handler can notice both, the closed socket and the lost parent:
//
//   - The handler is the host's child, so /proc/<parent>/fd names the host's sockets, and
//     /proc/<parent>/net/tcp and tcp6 list those that listen. Once a socket is found, one readlink
//     shows whether it is still open.
//   - The parent's id changes when the parent ends. (The kernel's parent-death signal is of no use:
//     it is sent when the thread ends that started the child.)
//
// # Which socket
//
// The host listens on other sockets, too, and begins to listen only after the handler has started.
// The port is in the host's environment, which the handler inherits, or in its command line. If
// neither names one on which the host listens, the watch goes by all sockets that other machines can
// reach, or by all sockets if there is none of these. The host stops when the last of the watched
// sockets is closed: a host that closes only some of them does not stop. A restart of the script host
// leaves its sockets open.
package hostwatch
