// Package drain delivers the messages of the lanes to the CMS. Of each lane only the holder sends messages, in order.
//
// # The story of one lane
//
// A laneWorker looks after a lane in one process. It reads the control rows. If there is work that
// may be sent, it takes the lane's lease and raises the fence; then a session delivers messages:
//
//	look ── no work ──────────────▶ wait for a wake
//	  │  ── paused or not due ────▶ wait until then
//	  │  ── lease busy ───────────▶ watch: look again each 0.8 s, later less often
//	  ▼
//	raise the fence ▶ serve requests ▶ choose ▶ send ▶ classify ▶ commit (beside the next send)
//	                   ▲                             │
//	                   └────── linger ◀── empty ─────┘ ──▶ hand over, release, look again
//
// session.run is that loop. Read it first, then the parts that it calls.
//
// # Parts
//
// The session connects the parts. Those of the first table call each other only through small interfaces that they
// declare, and the committer through the journal. They share the state in the second table.
//
//	requestHandler    grants or refuses the requests of other processes
//	dueMover          moves due messages into their keys' queues, beside the sending
//	selector          chooses the next message, and parks those that have to wait
//	prober            decides how to go on while the CMS refuses messages
//	attempter         sends one message, under the crashGuard and with prefetched bodies
//	outcomeRecorder   turns the outcome of an attempt into a change
//	committer         writes changes in the order of the decisions, in batches
//	controlRefresh    reads the control rows each second
//
//	readAhead         the messages of the log that were read and are not settled
//	keyStates         the blocks: queues of keys that wait, each with its held messages
//	dueCache          the earliest scheduled messages
//	operatorPauses    pauses of the lane and of single keys
//	breaker           whether the CMS may be sent a message, and whose fault a failure is
//	crashGuard        the message that may have ended earlier holders' processes
//	deliveryHistory   the last deliveries of keys with dead messages
//	latestVersions    the versions that were delivered last
//	rememberedIDs     the remembered ids of keys
//
// A message of a blocked or paused key is parked: the holder moves it from the log into its key's queue, so that the
// other keys go on. A pause does not change the time of a queue: the queue's first message is sent when both that time
// has come and the pause is over.
//
// A message of the log is settled once it is final, or has a row among the held or scheduled messages.
//
// # Invariants
//
//   - One message is in flight at a time per lane, under the lease's context.
//   - A key is pending from the decision of an outcome until its commit. So a crash never repeats a
//     delivery after a newer message of the same key was delivered.
//   - Of the log's messages of one key only the first unsettled one is chosen, or the newest version
//     if that supersedes it (supersede.go). With onFailure: skip, a message is settled as soon as it
//     waits for its retry.
//   - A due message has its position in its key's queue, in storage, before it is sent. The position
//     is behind the messages of its key that were filed before the move. The due message is not sent
//     until the holder has read the log up to that position. If the move is late, messages that were
//     filed after the due time go behind the due message (due_position.go), and wait until its
//     position is known.
//   - From the decision of a move until its answer no other message of its key is decided.
//   - Storage may refuse a move, because the message was cancelled or rescheduled. If it refuses any
//     other change, this process has lost the lane.
//   - A replayed message goes to its old position, before the waiting messages of its key. Unless it
//     is forced, a replay is refused if a later message of the key was delivered. A retry behind the
//     replayed message keeps its time.
//   - Keys that the CMS refuses, however many, keep no other key from its turn (prober.go), and a
//     refused message becomes final in bounded time.
//   - No message is sent if the pauses were read more than a second and a half ago.
//   - At most 64 outcomes are uncommitted: a crash can repeat no more. No message is parked while 128
//     changes are uncommitted: so the parked messages in memory are bounded.
//
// # Failure
//
// The loss of the lease cancels the session's context, and with it the request in flight. Storage
// refuses a later commit if another holder has raised the fence, and accepts it otherwise. The CMS
// may still work on a request that it did not answer, so neither this holder nor the next sends a
// message for the settle time. A holder that crashed leaves Open set in tail. After the third crash
// in a row the next holder is cautious: it reads one message at a time, names it in tail before it
// sends it, and commits its outcome before the next one. So a message that ends the process is
// found. Crashes are in a row until a holder hands the lane over after an attempt that came to its
// end (crash_guard.go).
package drain
