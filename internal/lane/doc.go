// Package lane keeps the log: it appends messages, reads them, and commits the outcomes of their
// delivery.
//
// # State
//
// A lane is one partition of one table, so one transaction can change all rows that must change
// together. These are the rows of a lane; package rows has their keys and columns:
//
//	!head                  next sequence number, request number, sealed; receivers, the API and a change of the
//	                       number of lanes write this row
//	!heir                  the last claim of a process to the lane
//	!mail                  exists if the outbox may have events; package outbox writes this row
//	!mailed                the receivers of events that got, or will get, an event about the lane's present
//	                       pause or backlog; package outbox writes this row
//	!pause                 an operator's pause of the lane
//	!pause_<hash>          an operator's pause of one key
//	!replay_<id>           a bulk replay under way; in lane 0 only; package jobrow writes this row
//	!swept                 the position of retention in the log, and the time at which retention continues
//	!tail                  nonce, fence, commit number, cursor, counters, closed, …; the holder writes this row
//	b_<block>              a block: the time of its next attempt, and the number of its held messages
//	c_<hash>               a remembered id: the CMS's id of the item for a key and contract
//	d_<last seq>           deliveries at the first attempt, many in one row
//	i_<hash>               an ordering key and an idempotency key → their message
//	k_<hash>               the newest delivered version of a key and contract
//	l_<hash>               the last delivery of a key that has dead messages
//	m_<seq>                the message, its stage and its attempts
//	n_<when>_<event>_<to>  an event in the outbox; package outbox writes this row
//	o_<epoch>.<lane>.<seq> a message of an earlier epoch → its copy in this lane
//	r_<block>_<position>   a held message of a block; tells whether the message was tried, or replayed
//	s_<due>_<seq>          a scheduled message, sorted by its due time
//	w_…                    a request to the holder for a change
//	x_<seq>                a dead message, for lists of dead messages
//
// Sequence numbers begin at 1. Row keys have them with leading zeros, so the order of rows is the
// order of the log. One range query reads head, tail and the markers between them, in one snapshot.
//
// A key's lane depends on the number of lanes, which is in the row meta/lanes. A change of that
// number ends an epoch: the heads are sealed and the tails closed. Then scheduled and dead messages
// are copied into the lanes of the next epoch. Package relane makes and describes the change.
//
// # Invariants
//
//   - An append raises head's next sequence number by the number of its messages, in the same
//     transaction. So the log has no gaps from the cursor on.
//   - A message below the cursor is final, or has exactly one r_ row or one s_ row. It is final if
//     its m_ row has a final stage, or if a d_ row names it.
//   - A scheduled message has one s_ row. Only the process that deletes this row decides about the
//     message: the holder moves the due message to the held messages; the API cancels the message
//     or changes its due time.
//   - accepted (head.next−1) = delivered + dead + cancelled + superseded + discarded + moved +
//     waiting, in every state that a reader can see. The transaction that makes a message final
//     also changes the counters. There is one exception: a scheduled message that the API has
//     cancelled counts as waiting until the holder has carried out its w_cancel_ row. After the
//     next epoch was opened, the messages that were copied into it count as moved, and no longer as
//     waiting or dead.
//   - A dead message has one x_ row. Only the holder replays a dead message. The replayed message
//     waits at its old position in the order of its key.
//   - If a key has dead messages, the commit that makes a message of the key delivered also writes
//     the message's position into the l_ row of the key. If that row already has a later position,
//     it stays unchanged.
//   - No message is appended to a sealed lane, and no process holds a closed lane.
//   - Only the API writes an operator's pauses, in a transaction under head's ETag.
//   - After tail's fence has risen, only the writer whose nonce is in tail can commit.
//
// # Failure
//
// The answer to a transaction can be lost, and a delayed transaction can still arrive. But in each
// append and each commit, operation 0 writes a control row under If-Match. Two facts follow:
//
//   - Of several copies of a transaction, at most one succeeds.
//   - After the control row's ETag has changed, no copy with the old ETag can succeed any more.
//
// So an unanswered transaction is sent again unchanged. If the ETag has changed and the rows of the
// transaction are missing, the transaction was not done, and never will be. To recognize its own
// transaction, the appender looks for its nonce in the first row that it tried to write; the holder
// looks for its nonce and commit number in tail.
package lane
