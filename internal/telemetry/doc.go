// Package telemetry is what Weir tells about itself: counters and gauges for Prometheus,
// kept in one registry per process.
//
// Metrics is fed from places that have something better to do: the drain's Observer, the
// appender, the sweep. So its methods only count, and never wait for I/O or for each other
// longer than a map look-up.
//
// Labels are bounded. Contract names are those of the settings: whatever else stands in a
// row (of a contract that was since removed) counts as "other".
package telemetry
