// Package drain delivers the messages of a lane: whoever holds the lane's lease empties it.
//
// # The story of one lane
//
// A tender looks after a lane in one process. It looks at the control rows; where there
// is work that may be sent it takes the lane's lease, and a run holds the lane:
//
//	look ── no work ──────────────▶ rest until woken
//	  │  ── paused or not due ────▶ rest until then
//	  │  ── lease busy ───────────▶ watch: look again each second
//	  ▼
//	take the fence ▶ serve ▶ choose ▶ send ▶ judge ▶ commit (beside the next send)
//	                   ▲                        │
//	                   └──── linger ◀── empty ──┘ ──▶ hand over, release, look again
//
// # State
//
// window is the part of the log that was read and is not settled; blocks are the keys
// that wait for a retry with the messages held behind; gate knows whether the CMS may be
// sent something and whether a failure is the message's or the CMS's; committer writes
// decisions in order, in batches. agenda is what is known of the scheduled messages, and
// releases are those on their way into their keys' lines, beside the sending (release.go). pauses are
// the operator's, of the lane and of single keys: they come with each read of the control
// rows. What the log has of a paused key is put aside into its line, so that the others go
// on; its blocks keep their own times, and the pause stands in front of them.
//
// # Invariants
//
//   - One message is in flight at a time per lane, under the lease's context.
//   - A key is closed from the moment an outcome of it is decided until that is committed:
//     so a crash never repeats a delivery across a newer one of the same key.
//   - Of one key only the first unsettled message is ever chosen.
//   - What falls due has its place in its key's line, in storage, before it is sent. It goes
//     behind all that was filed before its moment: not until the log was read up to that
//     place. Where it is released late, what was filed since goes behind it (places.go), and
//     waits until its place is known.
//   - From the decision of a release until its answer nothing else is decided of its key.
//   - A release alone may be refused, by whoever cancelled or moved the message; every other
//     refusal of a commit means that the lane is lost.
//   - A replayed message goes in front of what waits of its key, never behind what was
//     delivered, unless by force. The retry that it goes in front of keeps its time.
//   - A key that the CMS refuses, and any number of them, keeps no other key from its turn
//     (probe.go), and what is refused comes to its end in bounded time.
//   - Nothing is sent on news of the pauses that are older than a second and a half.
//   - At most 64 outcomes are uncommitted: that is all a crash can repeat. At most 128 changes
//     are: that is all that is in memory of what was put aside.
//
// # Failure
//
// Losing the lease cancels the run's context, and with it the request in flight. A commit
// after that is refused if another holder has taken the fence, and true if none has. An
// attempt that got no answer may still be at work in the CMS, so nothing is sent for the
// settle time, by this holder or the next. A holder that crashed leaves tail open; the
// third crash in a row makes the next holder careful: one message at a time, named in
// tail before it is sent, so that a message that ends the process is found.
package drain
