// Package drain delivers the messages of a lane: the process that holds the lane's lease empties it.
//
// # The story of one lane
//
// A laneWorker looks after a lane in one process. It reads the control rows. If there is work that
// may be sent, it takes the lane's lease and raises the fence; then a session holds the lane:
//
//	look ── no work ──────────────▶ wait for a wake
//	  │  ── paused or not due ────▶ wait until then
//	  │  ── lease busy ───────────▶ watch: look again each second
//	  ▼
//	raise the fence ▶ serve requests ▶ choose ▶ send ▶ classify ▶ commit (beside the next send)
//	                   ▲                             │
//	                   └────── linger ◀── empty ─────┘ ──▶ hand over, release, look again
//
// session.run is that loop. Read it first, then the parts that it calls.
//
// # Parts
//
// The parts do not call each other, except through the small interfaces that they declare; the
// session connects them. They share the state in the second table.
//
//	requestHandler    cancel, replay and resume: requests of other processes
//	dueMover          moves due messages into their keys' queues, beside the sending
//	selector          chooses the next message, and parks those that have to wait
//	prober            decides how to go on while the CMS refuses messages
//	attempter         sends one message, under the crashGuard and with prefetched bodies
//	outcomeRecorder   turns the outcome of an attempt into a change
//	committer         writes changes in the order of the decisions, in batches
//	controlRefresh    reads the control rows each second
//
//	readAhead         the messages of the log that were read and are not settled
//	keyStates         the keys that wait, each with its held messages
//	dueCache          the earliest scheduled messages
//	operatorPauses    pauses of the lane and of single keys
//	breaker           whether the CMS may be sent a message, and whose fault a failure is
//	deliveryHistory   the last deliveries of keys with dead messages
//
// A message of a paused key is parked: it leaves the log for its key's queue, so that the other
// keys go on. The queue keeps its own times, and the pause comes in front of them.
//
// # Invariants
//
//   - One message is in flight at a time per lane, under the lease's context.
//   - A key is pending from the decision of an outcome until its commit: so a crash never repeats a
//     delivery across a newer one of the same key.
//   - Of one key only the first unsettled message is ever chosen.
//   - A due message has its position in its key's queue, in storage, before it is sent. It goes
//     behind all messages that were filed before its due time: not until the log was read up to
//     that position. If it is moved late, messages filed since go behind it (due_position.go), and
//     wait until its position is known.
//   - From the decision of a move until its answer no other message of its key is decided.
//   - A move alone may be refused, because the message was cancelled or rescheduled; every other
//     refusal of a commit means that the lane is lost.
//   - A replayed message goes in front of the messages of its key that wait, never behind a
//     delivered one, except by force. The retry that it goes in front of keeps its time.
//   - Keys that the CMS refuses, however many, keep no other key from its turn (prober.go), and a
//     refused message comes to its end in bounded time.
//   - No message is sent if the pauses were read more than a second and a half ago.
//   - At most 64 outcomes are uncommitted: a crash can repeat no more. At most 128 changes are: so
//     the parked messages in memory are bounded.
//
// # Failure
//
// Losing the lease cancels the session's context, and with it the request in flight. A commit after
// that is refused if another holder has raised the fence, and holds if none has. An attempt without
// an answer may still be at work in the CMS, so no message is sent for the settle time, by this
// holder or the next. A holder that crashed leaves tail open; the third crash in a row makes the
// next holder cautious: it sends one message at a time, and names it in tail before, so that a
// message that ends the process is found. The row ends when a holder hands the lane over in order
// after an attempt; a holder that only waits for the CMS to settle makes none (crash_guard.go).
package drain
