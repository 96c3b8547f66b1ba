// Package poll works through the lanes for a bounded time. It is for platforms that have no triggers, or that
// can only start a job at intervals.
//
// # A period
//
// A scheduler starts a process each period. The process works like a continuous consumer until just before the
// next process starts. It ends in order, so that the next process takes over the lanes at once:
//
//	start ──▶ wake lanes with work, each idle ───────────▶ stop ─▶ close ─▶ end = next start
//	             │ work: the drain delivers it              │◀─ reserve ─▶│
//	             └ sweep: at the start, and each minute
//
//	reserve = (average time of an attempt × tolerance) or (an attempt's timeout), whichever is longer
//
// Each process computes the average from its own attempts; until its first attempt is answered, it uses an estimate.
// Processes do not pass the average on: a stored row would only replace the estimate before the first attempt.
//
// No attempt begins if its timeout would pass the end. The drain itself ensures this (drain.Config.NotAfter),
// even if the timer of this package fires late.
//
// # Two processes at the same time
//
// Two processes that overlap are two instances like any others, and so are a process and a Functions host. The lease
// lets only one of them write for a lane, and the fence makes storage refuse the commits of a late process. The leases
// of a killed process expire, as everywhere.
//
// # One lane
//
// DrainLane works without a period: it drains one lane until no message can be sent.
package poll
