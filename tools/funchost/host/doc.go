// Package host stands in for the Azure Functions host (v4) on a developer's machine and in tests.
// It reads a script root, which is the folder of host.json, as `func start` does. It runs the
// custom handler that host.json names, and calls the handler for HTTP requests, queue messages and
// timers in the real host's wire format.
//
// The stand-in behaves like the real host in everything on which the correctness of a handler
// depends:
//
//   - The handler is a child process. The host listens only after it has started the handler. The
//     host ends the handler only by SIGKILL.
//   - A host that is stopped closes its listening socket at once. It waits until all HTTP requests
//     have ended, and at most ten seconds for queue and timer invocations. Then it kills the
//     handler, or leaves the handler running (Config.Orphan).
//   - The host hides a queue message for ten minutes. Each five minutes it hides the message for
//     ten minutes again. After a success the host deletes the message. After a failure the message
//     becomes visible, at once or after visibilityTimeout. After maxDequeueCount failures the host
//     moves the message to the poison queue.
//   - The handler gets some invocations as a JSON payload, such as those for queue messages. Such
//     an invocation fails if its answer is not 2xx with a JSON object. After an empty 2xx answer
//     the real host hangs until functionTimeout. The stand-in fails the invocation at once and logs
//     the reason.
//   - A drain of the host (POST /admin/host/drain) stops the listeners of queues and timers, but
//     not HTTP. The drain is completed when no invocation runs.
//   - A restart (POST /admin/host/restart) starts a second handler beside the first. The first
//     handler lives until its invocations have ended.
//   - On Flex Consumption an instance runs the listeners of one group of functions (Config.Groups).
//     The host kills an instance that has had no invocation for some time (Config.IdleKill), even
//     if the handler is busy with other work.
//   - The host logs the lines that the real host logs about invocations, about the requests of
//     queue listeners, and for the handler's output. It filters these lines by logging.logLevel of
//     host.json, and counts them by category (Status.Logged). Lines about the stand-in itself are
//     neither filtered nor counted.
//   - The host leaves out a function whose function.json names an app setting that is not set. It
//     serves all other functions.
//   - An invocation that exceeds functionTimeout fails. If the invocation still runs two seconds
//     later, the host kills the handler, and all other requests in flight fail, too.
//   - If a handler that was ready exits with code 0, the host starts no new one. After any other
//     end of a handler, the host starts a new one.
//   - The host counts an error if a handler is not ready in time, or ends by itself with a code
//     other than 0 and 200. The third error ends the host. After half an hour without an error the
//     count starts again.
//   - The host decodes a request's path once before it chooses the function. A host that forwards
//     (see Mode) decodes the path a second time. testdata/targets.tsv has the paths and queries
//     that were observed with the real host.
//   - A host that forwards changes HTTP requests: it joins repeated query values, and drops headers
//     such as Content-Encoding. It refuses a chunked upload, and buffers the answer. After a 204,
//     205 or 304 it closes the client's connection.
//   - A host that proxies streams chunked requests and all answers. The handler notices when a
//     client disconnects. A host proxies if host.json sets enableProxyingHttpRequest and
//     Config.HTTP is not Forwarding.
//   - If the handler dies before it answers a request without a body, a host that proxies sends the
//     request again, with the same invocation id: up to ten times in about two seconds, or until
//     the handler answers.
//
// Beyond the real host, the stand-in can run several instances behind one address, as after a
// scale-out. Each instance is a handler process with its own queue listeners. Requests to
// /admin/host list, stop and crash instances.
//
// A handler can notice that the host stops, because the host's listening socket closes. All
// instances share one host process with one listening socket, so a handler cannot notice that only
// its own instance is being stopped. For tests in which a handler must notice this, package fleet
// runs a host process for each instance.
//
// In one process each timer fires once, however many instances the process has. If there are
// several processes, each of them fires the timer, even if the processes share a state folder
// (Config.StateDir). To get the behaviour of the real host, start only one process with the timer's
// group.
//
// The stand-in has no extension bundles, no output bindings except HTTP, no retry policies, no
// watch of files and no dynamic concurrency. Start returns an error if a function has a retry
// policy or a binding that is not supported.
package host
