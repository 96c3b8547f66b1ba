// Package drain delivers the messages of the lanes to the CMS. Only the holder of a lane sends the
// messages of the lane, in order per key.
//
// # The story of one lane
//
// A process has one laneWorker for each lane. The laneWorker reads the lane's control rows. If
// there is work that can be done now, it takes the lane's lease and raises the fence. Then a
// session delivers messages:
//
//	look ── no work ──────────────▶ wait for a wake
//	  │  ── paused or not due ────▶ wait for the end of the pause, or for the due time
//	  │  ── lease busy ───────────▶ watch: look again each 0.8 s, later less often
//	  ▼
//	raise the fence ▶ serve requests ▶ choose ▶ send ▶ classify ▶ commit (beside the next send)
//	                   ▲                             │
//	                   └── linger ◀─ lane is empty ──┘ ──▶ hand over, release, look again
//
// To linger is to stay at an empty lane for 2 to 3 s, because another message may come soon.
// session.run is the loop in the picture. Read it first, then the parts that it calls.
//
// # Parts
//
// The session connects the parts. The first group of parts does the work. These parts call each
// other only through small interfaces. The second group has the state that the first group shares.
//
//	requestHandler    grants or refuses the requests of other processes
//	dueMover          moves due messages into their keys' queues, while other messages are sent
//	selector          chooses the next message, and parks messages that have to wait (see below)
//	prober            decides how to go on while the CMS refuses messages
//	attempter         sends one message
//	outcomeRecorder   turns the outcome of an attempt into a change of stored rows
//	committer         writes changes in the order of the decisions, several in one transaction
//	controlRefresh    reads the control rows each second
//	timetable         knows when the next held or scheduled message is due
//
//	readAhead         the messages of the log that were read and are not settled (see below)
//	keyStates         the blocks, with their held messages
//	dueCache          the earliest due times of scheduled messages
//	operatorPauses    pauses of the lane and of single keys, set by operators
//	breaker           whether a message may be sent now, and whether the message or the CMS causes a failure
//	crashGuard        the message that may have ended the processes of earlier holders
//	deliveryHistory   the last deliveries of keys with dead messages
//	latestVersions    the last delivered version of each key
//	rememberedIDs     the remembered ids of keys
//
// A message of a blocked or paused key is parked: the holder moves the message from the log into
// the queue of its key, so that the other keys go on. Each queue has a time before which its first
// message is not sent. A pause of the key does not change that time.
//
// A message of the log is settled when it is final, held or scheduled.
//
// # Invariants
//
//   - At most one message per lane is being sent. Its request runs under the context of the lease.
//   - A key is pending from the decision of an outcome until the commit of that outcome. Meanwhile
//     no other message of the key is sent. So a crash never repeats a delivery after a newer
//     message of the same key was delivered.
//   - The holder sends the messages of a key in the order of the log: it chooses only the first
//     message that is not settled, or the newest version that supersedes that message
//     (supersede.go).
//   - With onFailure: skip, a message that waits for its retry is settled, so later messages of its
//     key are sent.
//   - A due message is sent after two steps: its position in its key's queue is stored, and the
//     holder has read the log up to that position.
//   - A move is on time if the holder finds the message's position before the due time has passed.
//     Otherwise the move is late (due_position.go).
//   - A due message whose move was on time comes after the messages of its key that were accepted
//     before the move.
//   - A due message whose move was late comes after the messages of its key that were accepted
//     before its due time, or that may have been sent. Other messages of the key wait until the
//     position of the due message is known.
//   - Moves do not run ahead of the CMS: while maxAhead moved messages wait, no further move
//     begins, except when none of them can be sent.
//   - After the holder has decided to move a message, it decides nothing about other messages of
//     that key until the committer has answered.
//   - Storage refuses a move if the message was cancelled or rescheduled. If storage refuses any
//     other change, this process has lost the lane.
//   - A replayed message goes to its old position, before the waiting messages of its key. A replay
//     without force is refused if a later message of the key was delivered. A replay does not
//     change the time of another message's retry.
//   - Even if the CMS refuses many keys, the holder still tries every remaining key (prober.go). A
//     refused message becomes final in bounded time.
//   - No message is sent if the operators' pauses were read more than a second and a half ago.
//   - At most 64 outcomes are uncommitted, so a crash can repeat at most 64 deliveries.
//   - While 128 changes are uncommitted, no message is parked. This bounds the parked messages in
//     memory.
//
// # Failure
//
// If the lease is lost, the context of the session ends, and the request in flight is cut off. If
// another holder has raised the fence, storage refuses all later commits of this holder. The CMS
// may still work on a request that got no answer. So after such a request no holder sends a message
// of the lane until the settle time is over.
//
// A holder sets IsOpen in tail when it takes the lane, and clears IsOpen when it hands the lane
// over. If the next holder finds IsOpen still set, it counts a crash. After three crashes in a row
// the next holder is cautious: it reads one message at a time, names the message in tail, sends it,
// and commits the outcome before the next message. So a message that ends the process is found. The
// count of crashes in a row begins anew when a holder has finished an attempt and hands the lane
// over (crash_guard.go).
package drain
