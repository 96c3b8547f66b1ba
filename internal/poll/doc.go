// Package poll works through the lanes for a bounded time, for places that have no triggers
// or may only start a job at intervals.
//
// # A period
//
// A scheduler starts a process each period. The process works like a continuous consumer
// until just before the next one starts, and leaves in order, so that the next one takes
// the lanes over at once:
//
//	start ──▶ look at the lanes, each idle ──────────────▶ stop ─▶ leave ─▶ end = next start
//	             │ work: the drain delivers it              │◀─ reserve ─▶│
//	             └ sweep: at the start, and each minute
//
//	reserve = the larger of (average time of an attempt × tolerance) and (an attempt's timeout)
//
// The average is that of this process, and an estimate until its first attempt has been
// answered: nothing is kept from one process to the next, for it would be a row to write
// and to read in order to know a little earlier what the first attempt tells anyway.
//
// No attempt begins whose timeout would pass the end. The drain holds that by itself
// (drain.Config.NotAfter), also where this package's timer comes late.
//
// # Two at once
//
// Two processes that overlap, or one beside a Functions host, are two instances like any:
// the lease lets one of them write for a lane, the fence refuses the commits of one that is
// late. A process that is killed leaves its leases to run out, as everywhere.
package poll
