// Package residence answers one question: when may this process hold a lane under a Functions host?
//
// A Functions host may end a process without notice while the process has no invocation of a queue
// or timer function in flight. A POST is no such invocation. So the lanes of such a process move to
// a process that has one:
//
//   - While an invocation stays with the lanes of a process (Permit.Attend), the process keeps its
//     lanes. Package stay has the timetable of these invocations.
//   - A holder without an invocation enqueues tickets. The process that gets a ticket has an
//     invocation, and claims the lane. The holder then hands the lane over. Package drain has
//     claims and hand-overs, in handover.go.
//   - When the last invocation of a process has to end, the process hands its lanes over, even if
//     no other process claims them.
//   - While the platform shuts a host down, the host still sends HTTP requests to its process. The
//     process would accept a message, take the lane, and hold the lane without an invocation. So if
//     no ticket has led to another invocation for long enough, the process takes no lane
//     (Permit.StopTaking), and enqueues tickets instead.
//   - When the host itself stops, the process hands all lanes over for good; see HostWatch. Package
//     hostwatch notices the stop.
//
// A process without a Functions host has no Permit: nothing ends it without notice, so it may
// always hold lanes.
package residence
