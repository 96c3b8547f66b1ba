// Package telemetry has Weir's metrics, traces and exported logs. Each process has one registry of
// metrics for Prometheus. If the environment names an OpenTelemetry collector, the package also
// sends traces, metrics and logs to the collector.
//
// The methods of Metrics are called for each message. So they only count: they do no I/O, and lock
// a mutex only to access a map.
//
// The number of label values is bounded. The label of a contract is its name in the settings. If
// the settings no longer have the contract of a stored message, the label is "other". If a message
// was superseded before the holder read it, the label is "unknown".
//
// The first span of a message is the span of the request or the append that brought the message.
// The message stores the trace context of the first span. So the first span is the parent of the
// spans of all waits and attempts of the message, in every process.
//
// Without a collector the process has a nil Export, which does nothing.
package telemetry
