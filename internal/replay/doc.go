// Package replay replays dead messages in bulk: those that match a filter, at a limited rate. It
// stops if too many of them die again.
//
// # State
//
//	Start ──▶ running ──all final──▶ done
//	             ├──too many are dead again──▶ stopped
//	             └──Cancel──▶ cancelled
//
// A running job is a row of lane 0 (!replay_<id>), which every process reads with the control rows
// of that lane. So each sweep finds the jobs whose process has died, without a query of its own. A
// job that ends gets a row of partition "replays", and its row of lane 0 is removed. A job with
// such a final row is over, even if it still has a row of lane 0.
//
// One process at a time runs a job, under the lease replay-<id>: the process that got the request,
// or one whose sweep found the row and the lease free.
//
// # The walk
//
// A job first counts its messages: those that are dead at that time. Messages that die later are
// excluded, because they may be its own. The job visits one lane after the other, and each lane in
// the order of its log. But it replays all messages of a key together, in order, when it reaches
// the first of them. If it replayed the second long after the first, a new message of the key could
// be delivered in between, and the second be refused.
//
// The job writes each batch down before it replays it, with its position in the walk, and the
// results after it. A batch is the messages that the rate allows in two seconds, or one key's
// messages, at most fifty. If a key has more, the next batch follows without waiting.
//
// # Outcomes
//
// Replayed messages are open until they are final. Their rows are read every two seconds while
// something changes, and less and less often otherwise. At most five hundred are open at a time, so
// a paused lane, or a CMS that is down, stops the walk as well. Jobs themselves ignore pauses:
// holders grant the requests, and delivery waits.
//
// # Invariants
//
//   - matched = replayed + refused + skipped + those that are still to come
//   - replayed = delivered + deadAgain + otherwise + waiting
//   - No message is replayed twice by one job: it must be in the lane's list of the dead
//     with the time of death that the walk has read.
//
// # Failure
//
// The process that resumes a job continues with the batch that was written down. If a message of it
// is not dead any more, or died since, its replay had been requested, and it is counted so. A
// replay is a request row, so that requesting it again changes nothing. Refusals that were counted
// and not written down are counted again; a job that is done counts them anew.
//
// Every write of a job's row is conditional on its ETag. A process that lost the lease and does not
// know it yet cannot write, and stops when it sees that another process has written.
package replay
