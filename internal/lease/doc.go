// Package lease holds a blob lease: it renews the lease, knows how long it may be trusted, and cancels a context
// when that time is over.
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
// A lost lease stays lost, even if a renewal succeeds afterwards: a caller that has stopped must not continue. The
// way back is Acquire, under a new id.
//
// # Invariant and formula
//
// While Trusted returns true, storage gives the lease to no other process. A lease of length L was granted or
// renewed by a request that was sent at s. Storage counts from the time at which it received the request, which is
// not before s. So the lease lasts at least until s + L. It is trusted for
//
//	elapsed since s < L − margin        (margin: a tenth of L, at least 2 s)
//
// Elapsed is the larger of the times that the monotonic and the wall clock have measured. The monotonic clock stands
// still while a machine sleeps; the wall clock can be set back. If the wall clock is set ahead, a good lease is
// given up, which is the cheaper error.
//
// # Failure
//
// A renewal has a time limit of a sixth of L, so that after a renewal that hangs there is time for another. After a
// failure the holder tries again each second. Only an answer extends trust. The new trust counts from the time at
// which the request of that answer was sent, however late the answer arrives.
//
// Trusted computes its result at each call. So a process that stood still past the end of trust learns that from
// Trusted, even if its timer has not fired. Call Trusted before each write. A timer cancels Context at the end of
// trust, or within a second after it if only the wall clock has passed the end.
//
// If the answer to an acquire is lost, the lease may have been granted. Acquire sends the request again under the
// same id, which renews the lease. If no answer arrives, Acquire releases the lease, as far as storage can be reached.
// If a request arrives even later, it takes a lease that no process knows; that lease expires after L.
//
// No lease is perfect. Between asking Trusted and the last byte of a write a process can stand still for longer than
// the margin. So results that are recorded under a lease are recorded under a fence as well.
package lease
