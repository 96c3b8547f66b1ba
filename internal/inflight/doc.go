// Package inflight keeps a request that ends the process from ending it again and again.
//
// A Functions host starts its handler again after the handler has died, but at most twice: the
// third death within 30 minutes of the one before ends the host. A host that proxies also sends a
// request without a body again if the handler dies under it, and the client of such a request
// repeats it. So a single request that the process does not survive, because of its memory or a
// fatal error, would end the host. A service manager that starts weir serve again gives up in the
// same way.
//
// A Guard marks each request without a body in a file while the request runs. The file outlives the
// process. The next process reads the marks: these requests ran when the process died, and one of
// them may be the cause.
//
//	deaths under a request   the guard
//	0                        runs it
//	1                        runs it, but no other request with a death at the same time
//	2                        answers 500 without running it
//
// The guard does not know the cause. Of the requests with a death only one runs at a time, so the
// next death condemns one of them at most. This one can be innocent: another request, without a
// death or with a body, may have ended the process. Then the guard refuses the innocent one for
// half an hour.
//
// A request that ends, with any answer, has not killed the process: its deaths are forgotten. They
// are also forgotten half an hour after the last one, when the host begins to count anew. The time
// of a death is that of the last mark before it. If the process begins to end in order, Stop removes
// the marks: the requests that are cut off then are not the cause.
//
// A request is known by its method and its target, so a repeat by the client counts, too. Requests
// with a body have no marks: the host sends them once, and those that do the work of a lane have
// the guard of package drain. A request that waits until storage is open has no mark, either.
//
// The file has a row of fixed length for each marked request. The guard writes a row with one
// system call and without a sync, because only the process dies, and not the machine. A process
// finds the marks of dead processes only, because no other process can have its file: under a host
// the handler's port is part of the file's name, and two processes cannot listen on one port at the
// same time; in a folder of weir serve the file belongs to the process with the folder's lock.
package inflight
