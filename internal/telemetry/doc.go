// Package telemetry has Weir's metrics, traces and exported logs: counters and gauges for Prometheus, in
// one registry for each process, and, if a collector is set, traces, metrics and logs by OpenTelemetry.
//
// The drain, the appender and the sweep call Metrics in their hot paths. So its methods only count; they
// do no I/O, and hold locks no longer than a map look-up.
//
// The number of label values is bounded. Contract labels are the names in the settings; all other
// contracts in rows (removed from the settings since) count as "other".
//
// Export makes the spans of the request that appended a message, and of each wait and attempt after it.
// The message keeps the trace context of the first span, so in every process that is the parent of the
// others. Without a collector there is no Export, at no cost.
package telemetry
