// Package host stands in for the Azure Functions host (v4) on a developer's machine and in
// tests: it reads a script root as `func start` does, runs the custom handler found there,
// and calls it for HTTP requests, queue messages and timers in the real host's wire format.
//
// It behaves like the real host in everything on which the correctness of a handler depends:
//
//   - The handler is a child process. The host ends it by SIGKILL only, and starts it before it listens.
//   - A host that is stopped closes its listening socket at once. It waits for HTTP requests to their end,
//     and for queue and timer invocations for ten seconds. Then it kills the handler, or leaves it behind
//     (Config.Orphan).
//   - A queue message is hidden for ten minutes, again and again at half of that time. After a success it is
//     deleted. After a failure it becomes visible (at once, or after visibilityTimeout); after
//     maxDequeueCount failures it goes to the poison queue.
//   - An invocation whose answer is 2xx without a JSON object fails. After an empty answer the real host
//     hangs until functionTimeout; this one fails at once and logs the reason.
//   - A drain stops the listeners of queues and timers, and is completed as soon as no invocation runs; HTTP
//     goes on. A restart of the script host starts a second handler beside the first, which lives until its
//     invocations have ended.
//   - On Flex Consumption an instance runs the listeners of one group of functions (Config.Groups), and is
//     killed when it has had no invocation for a while (Config.IdleKill), whatever its handler does.
//   - It logs the lines that the real host logs for invocations, for requests of the queue listeners and for
//     the handler's output, under host.json's logging.logLevel, and counts them by category (Status.Logged).
//     Lines about the stand-in itself are neither filtered nor counted.
//   - A function is left out if its function.json names an app setting that is not set; the host runs on.
//   - An invocation that exceeds functionTimeout costs the handler its process, with all requests in flight.
//     A handler that ends with exit code 0 is not started again; one that ends with 200 is, and counts as no
//     error. The third error ends the host, if none came more than half an hour after the one before.
//   - A request's target passes the real host's layers: the router sees the path decoded once, and a
//     forwarding host decodes it a second time. testdata/targets.tsv holds the observations.
//   - A host that forwards changes HTTP requests: it joins repeated query values, drops content headers,
//     refuses a chunked upload and buffers the answer. After a 204, 205 or 304 it closes the client's
//     connection.
//   - A host that proxies (if host.json asks for it, and Config.HTTP does not make the host an old one)
//     streams requests and answers, and the handler learns that a client has gone away.
//
// It adds several instances behind one address, each a handler process with listeners of its own, as
// after a scale-out; and /admin/host to look at them, stop and crash them.
// Instances in one process share the parent process and its listening socket, so that a handler cannot
// see there that its own instance is being stopped: package fleet runs a process for each.
//
// One process runs each timer once, over all its instances. Of several processes each runs it, even if they
// share a state folder (Config.StateDir): for the real host's behaviour only one may be of the timer's group.
//
// It leaves out extension bundles, output bindings other than HTTP's, retry policies,
// watching files, dynamic concurrency. A function that needs one of these is refused at the start.
package host
