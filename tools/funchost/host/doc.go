// Package host stands in for the Azure Functions host (v4) on a developer's machine and in
// tests: it reads a script root as `func start` does, runs the custom handler found there,
// and calls it for HTTP requests, queue messages and timers in the real host's wire format.
//
// It behaves like the real host in everything on which the correctness of a handler depends:
//
//   - The handler is a child process. The host starts the handler before the host itself listens, and ends the
//     handler by SIGKILL only.
//   - A host that is stopped closes its listening socket at once. It waits until all HTTP requests have ended,
//     and for queue and timer invocations for at most ten seconds. Then it kills the handler, or leaves it behind
//     (Config.Orphan).
//   - The host hides a queue message for ten minutes, and renews this lease after half of the time. After a success
//     it deletes the message. After a failure the message becomes visible (at once, or after visibilityTimeout), and
//     after maxDequeueCount failures it goes to the poison queue.
//   - The handler gets some requests with a JSON payload, such as those for queue messages. Such an invocation fails if
//     its answer is 2xx without a JSON object. After an empty answer the real host hangs until functionTimeout. The
//     stand-in fails the invocation at once and logs the reason.
//     logs the reason.
//   - A drain of the host (POST /admin/host/drain) stops the listeners of queues and timers, while HTTP goes on. The
//     drain is completed as soon as no invocation runs. A restart of the script host starts a second handler beside the
//     first. The first handler lives until its invocations have ended.
//   - On Flex Consumption an instance runs the listeners of one group of functions (Config.Groups), and is
//     killed when it has had no invocation for a while (Config.IdleKill), whatever its handler does.
//   - It logs the lines that the real host logs: for invocations, for requests of the queue listeners, and for the
//     handler's output. It filters these lines by logging.logLevel of host.json, and counts them by category
//     (Status.Logged). Lines about the stand-in itself are neither filtered nor counted.
//   - A function is left out if its function.json names an app setting that is not set; the host serves the others.
//   - An invocation that exceeds functionTimeout fails. If it still runs two seconds later, the host kills the
//     handler, which ends all its requests in flight.
//   - The host does not restart a handler that ends with exit code 0 after it was ready. It restarts one that ends with
//     exit code 200, and counts no error. Any other end is an error. A handler that is not ready in time is an error,
//     too. The third error ends the host, if each error came within half an hour of the one before.
//   - A request's target passes the same layers as in the real host: the router sees the path decoded once, and a
//     forwarding host decodes it a second time. testdata/targets.tsv holds the observations.
//   - A host that forwards changes HTTP requests: it joins repeated query values, and drops headers such as
//     Content-Encoding. It refuses a chunked upload, and buffers the answer. After a 204, 205 or 304 it closes the
//     client's connection.
//   - If a host proxies, it streams requests and answers, and the handler learns that a client has gone away. A host
//     proxies if host.json asks for that, unless Config.HTTP is Forwarding.
//
// Beyond the real host it runs several instances behind one address, as after a scale-out: each is a handler process
// with listeners of its own. Under /admin/host they can be listed, stopped and crashed. All handlers of a host have the
// same parent process with one listening socket, so a handler cannot see that its own instance is being stopped.
// Package fleet runs a process for each instance.
//
// Each timer runs once in a process, however many instances the process has. If there are several processes, each of
// them runs the timer, even if they share a state folder (Config.StateDir). To get the behaviour of the real host,
// start only one process with the timer's group.
//
// It has no extension bundles, no output bindings other than that of HTTP, no retry policies, no watch of files and no
// dynamic concurrency. The start fails if a function has another binding or a retry policy.
package host
