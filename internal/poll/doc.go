// Package poll works through the lanes for a bounded time. It is for platforms that have no
// triggers, or that can only start a job at intervals.
//
// # A period
//
// A scheduler starts a process once per period. The process delivers messages until shortly before
// the scheduler starts the next process. It then hands its lanes over, so that the next process can
// take the lanes at once:
//
//	start --> wake the lanes with work, every Idle -----> stop --> close --> end = next start
//	            | a lane with work: the drain delivers it   |<--- reserve ---->|
//	            | a sweep: at the start, and each minute
//
//	Idle      = Config.Idle, the time between two reads of the lanes
//	tolerance = Config.Tolerance
//	reserve   = (average time of an attempt × tolerance) or (an attempt's timeout), whichever is longer
//
// Each process computes the average from its own attempts. Until its first attempt is answered, it
// uses an estimate (Config.Estimate). The average is not stored for the next process, because the
// next process would use it only until its own first attempt is answered.
//
// No attempt begins if its timeout would end after the period. The drain ensures this with
// drain.Config.NotAfter, even if the timer of this package fires late.
//
// # Two processes at the same time
//
// Two processes of this package can run at the same time, and so can a process and a Functions
// host. The lease lets only one of them write for a lane. The fence makes storage refuse late
// commits of a process that has lost its lease. If a process is killed, its leases expire, and
// another process can take its lanes.
//
// # One lane
//
// DrainLane works without a period: it drains one lane until no message can be sent.
package poll
