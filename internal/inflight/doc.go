// Package inflight keeps a request that ends the process from ending it again and again.
//
// A Functions host starts its handler again after the handler has died, but at most twice: the
// third death within 30 minutes of the one before ends the host. A host that proxies also sends a
// request without a body again if the handler dies under it, and the client of such a request
// repeats it. So a single request that the process does not survive, because of its memory or a
// fatal error, would end the host.
//
// A Guard marks each request without a body in a file while the request runs. The file outlives the
// process. The next process reads the marks: these requests ran when the process died, and one of
// them may be the cause.
//
//	deaths under a request   the guard
//	0                        runs it
//	1                        runs it, but no other request with a death at the same time, so that the next death has
//	                         one suspect
//	2                        answers 500 without running it
//
// A request that ends, with any answer, has not killed the process: its deaths are forgotten. They
// are also forgotten after half an hour, when the host begins to count anew. A request is known by
// its method and its target, so a repeat by the client counts, too. Requests with a body have no
// marks: the host sends them once, and those that do the work of a lane have the guard of package
// drain.
//
// The file has a row of fixed length for each marked request. The guard writes a row with one
// system call and without a sync, because only the process dies, and not the machine. The port of
// the handler is part of the file's name. Two processes cannot listen on one port at the same time,
// so a process that listens finds the marks of dead processes only.
package inflight
