// Package telemetry has Weir's metrics, traces and exported logs. Each process has one registry with counters
// and gauges for Prometheus. If a collector is set, the package sends traces, metrics and logs by
// OpenTelemetry.
//
// The drain, the appender and the sweep call Metrics in their hot paths. So its methods only count: they do no
// I/O, and hold a lock only for a map look-up.
//
// The number of label values is bounded. The label of a contract is its name in the settings. Any other
// contract in a row, which the settings no longer have, gets the label "other".
//
// Export makes a span for the request that appended a message, and for each later wait and attempt. The message
// stores the trace context of the first span. So in every process the first span is the parent of the later
// ones. Without a collector there is no Export, which costs nothing.
package telemetry
