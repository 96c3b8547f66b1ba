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
// The session connects the parts. The parts of the first table call each other only through small interfaces that they
// declare. They call the committer through the journal. They share the state in the second table.
//
//	requestHandler    grants or refuses the requests of other processes
//	dueMover          moves due messages into their keys' queues, beside the sending
//	selector          chooses the next message, and parks messages that have to wait (see below)
//	prober            decides how to go on while the CMS refuses messages
//	attempter         sends one message, under the crashGuard and with prefetched bodies
//	outcomeRecorder   turns the outcome of an attempt into a change
//	committer         writes changes in the order of the decisions, several in one transaction
//	controlRefresh    reads the control rows each second
//
//	readAhead         the messages of the log that were read and are not settled
//	keyStates         the blocks; a block is the queue of a key that waits, with its held messages
//	dueCache          the earliest scheduled messages
//	operatorPauses    pauses of the lane and of single keys
//	breaker           whether a message may be sent now, and whether the message or the CMS causes a failure
//	crashGuard        the message that may have ended earlier holders' processes
//	deliveryHistory   the last deliveries of keys with dead messages
//	latestVersions    the versions that were delivered last
//	rememberedIDs     the remembered ids of keys
//
// A message of a blocked or paused key is parked: the holder moves it from the log into its key's queue, so that the
// other keys go on. A queue has a time at which its first message may be sent. A pause does not change that time: the
// message is sent once the time has come and the pause is over.
//
// A message of the log is settled once it is final, or has a row among the held or scheduled messages.
//
// # Invariants
//
//   - One message is in flight at a time per lane, under the lease's context.
//   - A key is pending from the decision of an outcome until that outcome is committed. Meanwhile no
//     other message of the key is sent. So a crash never repeats a delivery after a newer message of
//     the same key was delivered.
//   - The holder sends the log's messages of one key in order: it chooses only the first unsettled
//     one, or the newest version if that supersedes it (supersede.go). With onFailure: skip, a message
//     is settled as soon as it waits for its retry.
//   - A due message has its position in its key's queue, in storage, before it is sent. The position
//     is behind the messages of its key that were filed before the move. The due message is not sent
//     until the holder has read the log up to that position. If the move is late, messages that were
//     filed after the due time go behind the due message (due_position.go), and wait until its
//     position is known.
//   - Once the holder has decided to move a message, it decides nothing about other messages of that
//     key until the committer has answered.
//   - Storage may refuse a move, because the message was cancelled or rescheduled. If it refuses any
//     other change, this process has lost the lane.
//   - A replayed message goes to its old position, before the waiting messages of its key. Unless it
//     is forced, a replay is refused if a later message of the key was delivered. If the next message
//     waits for a retry, the time of that retry stays the same.
//   - However many keys the CMS refuses, the holder still tries each other key (prober.go). A refused
//     message becomes final in bounded time.
//   - No message is sent if the pauses were read more than a second and a half ago.
//   - At most 64 outcomes are uncommitted, so a crash can repeat at most 64 deliveries. No message is
//     parked while 128 changes are uncommitted. That bounds the parked messages in memory.
//
// # Failure
//
// The loss of the lease cancels the session's context, and with it the request in flight. Storage refuses a later
// commit if another holder has raised the fence, and accepts it otherwise. The CMS may still work on a request that it
// did not answer, so neither this holder nor the next sends a message for the settle time. A holder that crashed leaves
// Open set in tail. After the third crash in a row the next holder is cautious: it reads one message at a time, names
// it in tail before it sends it, and commits its outcome before the next one. So a message that ends the process is
// found. A row of crashes ends when a holder hands the lane over after an attempt that came to its end
// (crash_guard.go).
package drain
