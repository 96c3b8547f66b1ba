// Package lease holds a blob lease: it renews it, knows how long it may be trusted, and
// cancels a context when it may not any more.
//
// # State
//
//	Acquire ──busy──▶ ErrBusy
//	   │
//	   ▼        renewed: trust moves on
//	trusted ◀──────────────────────────┐
//	   │ └──────every third of Length──┘
//	   │
//	   ├─ trust ends, or storage says it is not ours ─▶ lost (for good)
//	   └─ Release, or the parent context ends ────────▶ given up
//
// A lease that is lost stays lost, even when a renewal is answered well afterwards:
// whoever was told to stop must not be told to go on. The way back is Acquire, under a
// new id.
//
// # Invariant and formula
//
// While Trusted says true, storage gives the lease to nobody else. A lease of length L
// was granted or renewed by a request that went out at s. Storage counts from when it
// received the request, which is no earlier, so the lease lasts at least until s + L, and
// is trusted for
//
//	elapsed since s < L − margin        (margin: a tenth of L, at least 2 s)
//
// Elapsed is the larger of what the monotonic and the wall clock say: the one stands
// still while a machine sleeps, the other can be set back. A wall clock set ahead costs a
// lease that was still good; that is the cheaper error.
//
// # Failure
//
// A renewal has a limit of a sixth of L, so that one that hangs leaves time for another,
// and one that fails is tried again each second. Nothing but an answer moves trust on, and
// it counts from when its own request was sent, however late it comes.
//
// Trusted computes at each call, so a process that stood still past the end of trust
// learns it by asking, whether or not its timer has fired; ask before each write. Context
// is cancelled at the end of trust by a timer, and within a second when only the wall
// clock knows that it has passed.
//
// An acquire whose answer is lost may have taken the lease. It is asked again under the
// same id, which renews; when that stays without an answer the lease is given back as far
// as storage can be reached. A request that arrives even later leaves a lease that nobody
// knows of; it runs out after L.
//
// No lease is perfect. Between asking Trusted and the last byte of a write a process can
// stand still for longer than the margin; that is why what is recorded under a lease is
// recorded under a fence as well.
package lease
