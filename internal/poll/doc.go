// Package poll works through the lanes for a bounded time, on platforms that have no triggers or
// can only start a job at intervals.
//
// # A period
//
// A scheduler starts a process each period. The process works like a continuous consumer until just
// before the next one starts, and ends in order, so that the next one takes over the lanes at once:
//
//	start ──▶ wake lanes with work, each idle ───────────▶ stop ─▶ close ─▶ end = next start
//	             │ work: the drain delivers it              │◀─ reserve ─▶│
//	             └ sweep: at the start, and each minute
//
//	reserve = the larger of (average time of an attempt × tolerance) and (an attempt's timeout)
//
// The average is that of this process, and an estimate until its first attempt has been answered.
// It is not stored between processes: a row to write and read would only replace the estimate
// before the first attempt.
//
// No attempt begins if its timeout would pass the end. The drain ensures that itself
// (drain.Config.NotAfter), even if the timer of this package fires late.
//
// # Two at once
//
// Two processes that overlap, or one beside a Functions host, are two instances like any others:
// the lease lets one of them write for a lane, and the fence refuses the commits of one that is
// late. The leases of a killed process expire, as everywhere.
package poll
