// Package lane keeps the log: it appends messages, reads them, and commits what came
// of them.
//
// # State
//
// A lane is one partition of one table, so one transaction changes together what must
// change together. Its rows, by key:
//
//	!head                  next sequence number, touched, sealed: written by receivers and the API
//	!heir                  the last claim of a process to the lane
//	!mail                  the outbox may hold something; !mailed: what was told of the lane itself
//	!pause                 the operator has paused the lane; !pause_<hash>: one key
//	!replay_<id>           a bulk replay under way; in lane 0 alone
//	!swept                 how far retention has come, and when it looks again
//	!tail                  the holder's: nonce, fence, commit number, cursor, counters, closed, …
//	b_<block>              a blocked key: when it is tried again, how many it holds
//	d_<last seq>           messages delivered at their first attempt, many in one row
//	i_<hash>               an idempotency key of an ordering key → the message it named
//	k_<hash>               the version of a key and contract that was delivered last
//	l_<hash>               the delivery of a key that stands last in its order, where some of it died
//	m_<seq>                the message, its stage and its attempts; never moves
//	n_<when>_<event>_<to>  mail: an event that a receiver is to be told of; see outbox.go
//	o_<epoch>.<lane>.<seq> a message of an earlier epoch → its copy in this lane
//	r_<block>_<place>      a held message of a blocked key, in order; says whether it was tried, or replayed
//	s_<due>_<seq>          a scheduled message, by time
//	w_…                    a request: somebody asks the holder for a change
//	x_<seq>                a dead message, for listing
//
// A sequence number is padded with zeros, so the order of rows is the order of the log.
// Numbers begin at 1. The two control rows are neighbours: one range query reads both in
// one snapshot.
//
// A key's lane depends on the number of lanes, which the row meta/lanes tells. A change of
// it ends an epoch: the heads are sealed, the tails closed, and what is kept for later goes
// to the lanes of the next epoch. Package relane does that, and has the story.
//
// # Invariants
//
//   - head.next grows by one for each message, in the transaction that files it; above
//     the cursor the log has no gaps.
//   - A message below the cursor is final, or stands in exactly one r_ row or one s_ row.
//     Final is one whose m_ row says so, or one that a d_ row names.
//   - A scheduled message has one s_ row; whoever deletes it decides what becomes of the
//     message: the holder releases it, the API cancels or moves it.
//   - accepted (head.next−1) = delivered + dead + cancelled + superseded + waiting, in
//     every state a reader can see, because counters move with the rows they count. In a
//     lane whose epoch is over, moved stands for what was scheduled or dead.
//   - A dead message has one x_ row. Whoever takes it back, and that is the holder alone,
//     counts it among the waiting again and gives it the place it had.
//   - Of a key with dead messages every delivery moves its l_ row on, in the same commit.
//   - Nothing is filed in a sealed lane, and nobody holds a closed one.
//   - Pauses are written together with head, under its ETag, by the API alone.
//   - Only the writer whose nonce is in tail has ever committed since tail's fence rose.
//
// # Failure
//
// A transaction's answer can be lost, and a lost transaction can still arrive. Both
// sides of the lane rely on one fact: operation 0 is the control row under If-Match, so
// of all copies of a transaction at most one can succeed, and once the control row's
// ETag has moved, no copy that named the old ETag ever can. So an unanswered transaction
// is sent again unchanged, and "it is not there" is believed only when the ETag has
// moved. How to know one's own work again: the appender looks for its nonce in the first
// row it tried; the holder looks for its nonce and commit number in tail.
package lane
