// Package host stands in for the Azure Functions host (v4) on a developer's machine and in
// tests: it reads a script root as `func start` does, runs the custom handler found there,
// and calls it for HTTP requests, queue messages and timers in the real host's wire format.
//
// What it keeps of the real host, because a handler's correctness hangs on it:
//
//   - The handler is a child process that is only ever ended by SIGKILL. It starts before the host listens.
//   - A host that is stopped closes its listening socket at once, waits for HTTP requests to their end and
//     for queue and timer invocations ten seconds. Then the handler is killed, or left behind (Config.Orphan).
//   - A queue message is hidden for ten minutes and renewed at half of that; deleted on
//     success, visible at once (or after visibilityTimeout) on failure, poison after maxDequeueCount.
//   - A 2xx without a JSON object is no success. Where the real host would hang until functionTimeout
//     after an empty one, this one fails at once and says so.
//   - A drain stops the listeners of queues and timers and counts invocations only; HTTP goes on. A restart
//     starts a second handler beside the first, which lives until its invocations have ended.
//   - On Flex Consumption an instance runs the listeners of one group of functions (Config.Groups), and is
//     killed when it has had no invocation for a while (Config.IdleKill), whatever its handler does.
//   - It logs the lines that the real host logs for invocations, for requests of the queue listeners and for
//     the handler's output, under host.json's logging.logLevel, and counts them by category (Status.Logged).
//     Lines about the stand-in itself are neither filtered nor counted.
//   - A function that names an app setting which is not set is left out; the host runs on.
//   - A timeout kills the whole process with all that is in flight. Exit code 0 is not followed by a
//     restart, 200 is, and the third error within half an hour of the last ends the host.
//   - A request's target passes the real host's layers: the router sees the path decoded once, and a
//     forwarding host decodes it a second time. testdata/targets.tsv holds what was seen.
//   - Forwarded HTTP requests lose what they lose on the way: repeated query values are joined, content
//     headers are dropped, a chunked upload is refused, the answer is buffered. A 204, 205 or 304 costs
//     the client its connection.
//   - Proxied ones, if host.json asks for it and the host is not made an old one, are streamed both ways,
//     and the handler learns that a client has gone away.
//
// What it adds: several instances behind one address, each a handler process with listeners
// of its own, as scale-out would have it; and /admin/host to look at them, stop and crash them.
// Instances in one process share the parent process and its listening socket, so that a handler cannot
// see there that its own instance is being stopped: package fleet runs a process for each.
//
// One process runs each timer once, over all its instances. Several processes would each run them: of those,
// one alone may be of the timer's group.
//
// What it leaves out: extension bundles, output bindings other than HTTP's, retry policies,
// watching files, dynamic concurrency. A function that needs one of these is refused at the start.
package host
