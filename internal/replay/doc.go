// Package replay replays dead messages in bulk: those that match a filter, at a rate, with
// an eye on what becomes of them.
//
// # State
//
//	Start ──▶ running ──all final──▶ done
//	             ├──too many are dead again──▶ stopped
//	             └──Cancel──▶ cancelled
//
// A job under way is a note of lane 0 (!replay_<id>), which everybody who looks at that lane
// reads with its control rows. So each sweep finds the jobs whose process is gone, at no cost
// of its own. When a job is over it gets a row of partition "replays", and its note goes. A
// job that has such a row is over, whatever its note says.
//
// One process at a time carries a job, under the lease replay-<id>: the one that was asked
// for it, or one whose sweep found the note and the lease free.
//
// # The walk
//
// A job begins with counting what it means: the messages that are dead at that time, and not
// those that die later, for they may be its own. It goes from lane to lane, and in a lane through the log; but all messages
// of a key go together, in order, when the turn comes to the first of them. Were the second
// replayed long after the first, a new message of the key could be delivered in between, and
// the second be refused.
//
// The messages whose turn it is are written down before they are replayed, with the place
// that the walk has come to; what came of them is written down after. A turn is as much as
// the rate allows in two seconds, or one key's messages, at most fifty; a key that has more
// goes on in the next turn, which does not wait then.
//
// # What becomes of them
//
// Those replayed are open until they are final. Their rows are read every two seconds while
// something happens, and less and less often else. No more than five hundred are open at a
// time, so a lane that is paused, or a CMS that is down, stops the walk as well. Jobs
// themselves do not heed pauses: wishes are granted, and delivery waits.
//
// # Invariants
//
//   - matched = replayed + refused + skipped + those whose turn has not come
//   - replayed = delivered + deadAgain + otherwise + waiting
//   - No message is replayed twice by one job: it must stand in the lane's list of the dead
//     with the moment of death that the walk has read.
//
// # Failure
//
// Whoever takes a job up goes on with the turn that was written down. A message of it that
// is not dead any more, or died since, had been asked for already, and is counted so. Replays
// are asked for by wishes, so that a repeated one is the same one. Refusals that were counted
// and not written down are counted again; when a job is done they are counted anew.
//
// Every write of a note is conditional on its ETag: a carrier that lost its lease and does
// not know it yet writes nothing, and stops when it sees that another has written.
package replay
