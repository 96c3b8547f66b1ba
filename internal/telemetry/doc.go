// Package telemetry is what Weir tells about itself: counters and gauges for Prometheus,
// kept in one registry per process, and, where a collector is named, traces, metrics and
// logs by OpenTelemetry.
//
// Metrics is fed from places that have something better to do: the drain's Observer, the
// appender, the sweep. So its methods only count, and never wait for I/O or for each other
// longer than a map look-up.
//
// Labels are bounded. Contract names are those of the settings: whatever else stands in a
// row (of a contract that was since removed) counts as "other".
//
// Export makes the spans: of the request that filed a message, and of each wait and attempt
// behind it. The span that the message keeps is the parent of all, whichever process makes
// them. Without a collector there is no Export, and it costs nothing.
package telemetry
