// Package lane keeps the log: it appends messages, reads them, and commits the outcomes of their
// delivery.
//
// # State
//
// A lane is one partition of one table, so one transaction can change all rows that must change
// together. These are its rows; package rows has their keys and columns:
//
//	!head                  next sequence number, request number, sealed: written by receivers, the API, and a
//	                       change of the number of lanes
//	!heir                  the last claim of a process to the lane
//	!mail                  says that the outbox may have events; !mailed: events about the lane's own state;
//	                       package notify/outbox keeps both
//	!pause                 the operator has paused the lane; !pause_<hash>: one key
//	!replay_<id>           a bulk replay under way; in lane 0 only; package replay/jobrow keeps it
//	!sums                  the holder's further counters: the number of discarded messages
//	!swept                 how far retention has come, and when it looks again
//	!tail                  nonce, fence, commit number, cursor, counters, closed, …: written by the holder
//	b_<block>              a blocked key: when it is tried again, how many messages it holds
//	d_<last seq>           messages delivered at their first attempt, many in one row
//	i_<hash>               an idempotency key of an ordering key → its message
//	c_<hash>               the CMS's id of the item of a key and contract
//	k_<hash>               the newest delivered version of a key and contract
//	l_<hash>               a key that has dead messages → its last delivery, by the order of the key
//	m_<seq>                the message, its stage and its attempts; never moves
//	n_<when>_<event>_<to>  an event for a receiver; package notify/outbox keeps it
//	o_<epoch>.<lane>.<seq> a message of an earlier epoch → its copy in this lane
//	r_<block>_<position>   a held message of a blocked key, in order; says whether it was tried, or replayed
//	s_<due>_<seq>          a scheduled message, by time
//	w_…                    a request to the holder for a change
//	x_<seq>                a dead message, for lists
//
// A sequence number is padded with zeros, so the order of rows is the order of the log. Numbers begin
// at 1. Head and tail are neighbours: one range query reads both, and the marker rows between them, in
// one snapshot.
//
// A key's lane depends on the number of lanes, which is in the row meta/lanes. A change of that number
// ends an epoch: the heads are sealed, the tails closed, and scheduled and dead messages are copied into
// the lanes of the next epoch. Package relane does that, and describes it; relane/epochend writes the rows.
//
// # Invariants
//
//   - head.next grows by one for each message, in the transaction that files it; from the cursor
//     on the log has no gaps.
//   - A message below the cursor is final, or has exactly one r_ row or one s_ row. It is final if its
//     m_ row has a final stage, or if a d_ row names it.
//   - A scheduled message has one s_ row. The process that deletes the row decides about the message:
//     the holder releases the message; the API cancels it or changes its due time.
//   - accepted (head.next−1) = delivered + dead + cancelled + superseded + discarded + waiting, in every
//     state that a reader can see: the transaction that makes a message final also changes the
//     counters. There is one exception: a scheduled message that the API has cancelled counts as waiting
//     until the holder has carried out its w_cancel_ row. In a lane whose epoch is over, the counter "moved"
//     has the messages that were scheduled or dead, and the counter "dead" no longer has them.
//   - A dead message has one x_ row. Only the holder replays a dead message: the message then waits
//     again, at its old position in the order of its key.
//   - A key that has dead messages has an l_ row with a position. Each delivery of the key at a later
//     position updates that row in the same commit.
//   - No message is filed in a sealed lane, and no process holds a closed lane.
//   - Only the API writes an operator's pauses, in a transaction under head's ETag.
//   - Since tail's fence rose, only the writer whose nonce is in tail has committed.
//
// # Failure
//
// The answer to a transaction can be lost, and a lost transaction can still arrive. Appender and holder
// rely on one fact: operation 0 is the control row under If-Match. So of all copies of a transaction at
// most one can succeed, and once the control row's ETag has changed, no copy with the old ETag ever
// can. An unanswered transaction is therefore sent again unchanged. Only after the ETag has changed
// does a missing row prove that the transaction was not done. To recognize its own transaction, the
// appender looks for its nonce in the first row that it tried to write; the holder looks for its nonce
// and commit number in tail.
package lane
