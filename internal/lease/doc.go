// Package lease holds a blob lease. It renews the lease, knows how long the lease can be trusted,
// and cancels a context when trust ends.
//
// # State
//
//	Acquire ──busy──▶ ErrBusy
//	   │
//	   ▼        renewed: trust is extended
//	trusted ◀──────────────────────────┐
//	   │ └──────every third of Length──┘
//	   │
//	   ├─ trust ends, or storage refuses a renewal ────▶ lost (for good)
//	   └─ Release, or the parent context ends ────────▶ released
//
// A lost lease stays lost, even if a renewal succeeds afterwards, because the caller may have
// stopped its work already. To get the lease again, a process calls Acquire, which uses a new id.
//
// # Invariant and formula
//
// While Trusted returns true, storage gives the lease to no other process. Storage grants or renews
// a lease for a length L. It counts L from the time at which it receives the request, which is not
// earlier than the time s at which the request was sent. So the lease lasts at least until s + L.
// Weir trusts the lease while
//
//	elapsed since s < L − margin        (margin: a tenth of L, at least 2 s)
//
// "Elapsed" is the larger of the times that the monotonic clock and the wall clock have measured.
// The monotonic clock stops while a machine sleeps, and the wall clock can be set back. If the wall
// clock is set ahead, a process gives up a lease that is still good. That costs less than two
// holders at the same time.
//
// # Failure
//
// A renewal has a time limit of a sixth of L. So if one renewal hangs, there is time for another.
// After a failed renewal the next one is sent a second later. Only a successful answer extends
// trust. The new trust counts from the time at which the answered request was sent, however late
// the answer arrives.
//
// A timer cancels Context at the end of trust. If only the wall clock has passed the end of trust,
// the timer cancels Context within a second. In addition, call Trusted before each write. Trusted
// reads the clocks at each call. So a process that stalled past the end of trust learns that the
// lease is lost, even if the timer has not fired yet.
//
// If the answer to an acquire is lost, storage may have granted the lease. Acquire sends the
// request again under the same id. If this process has the lease already, the repeated request
// renews the lease. If no answer arrives, Acquire tries to release the lease. If storage receives a
// delayed request after the release, storage still grants the lease. No process uses this lease,
// and it expires after L.
//
// A lease alone is not enough. Between a call of Trusted and the last byte of a write, a process
// can stall for longer than the margin. So the holder of a lane also uses a fence: storage refuses
// the commits of an earlier holder.
package lease
