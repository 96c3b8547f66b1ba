// Package telemetry has Weir's metrics, traces and exported logs. Each process has one registry with metrics for
// Prometheus. If the environment names an OpenTelemetry collector, the package sends traces, metrics and logs to it.
//
// The drainer, the appender and retention call the methods of Metrics in their hot paths. So these methods only
// count: they do no I/O, and lock a mutex only to access a map.
//
// The number of label values is bounded. The label of a contract is its name in the settings. A stored message may
// have a contract that the settings no longer have: the label is then "other". If the contract was not read, the
// label is "unknown".
//
// Export makes the first span of a message for the request or the append that brought the message. It makes further
// spans for each wait and each attempt of the message. The message stores the trace context of the first span. So the
// first span is the parent of all other spans of the message, in every process. Without a collector the process has a
// nil Export, which does nothing.
package telemetry
