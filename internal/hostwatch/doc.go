// Package hostwatch notices that the Functions host which started this process stops, or is gone.
//
// A host that is told to stop sends its handler no signal. It closes its listening socket, waits
// for the invocations in flight for ten seconds at most, and kills the handler. A host that has
// waited in vain, or dies, leaves the handler behind without a parent. Both can be seen from
// here (on Linux):
//
//   - The handler is the host's child, so /proc/<parent>/fd names the host's sockets, and
//     /proc/<parent>/net/tcp and tcp6 list those that listen. From then on one readlink shows
//     whether the socket is still there.
//   - The parent's id changes when the parent ends. (The kernel's parent-death signal is of no use:
//     it is sent when the thread ends that started the child.)
//
// # Which socket
//
// The host listens on other sockets, too, and begins to listen only after the handler has started.
// The port is in the host's environment, which the handler inherits, or in its command line. If
// neither names one, the watch goes by all sockets that other machines can reach, or, if there is
// none, by all. It takes the host to stop when the last of them is gone, so a host that still
// listens anywhere is never taken to stop. A restart of the script host leaves the socket as it is.
package hostwatch
