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
// of that lane. So each sweep finds the jobs whose process has died, without a further query. When a
// job ends, its process writes a row into the partition "replays", and then removes the row of lane 0.
// A job with a row in "replays" is over, even if it still has a row of lane 0.
//
// One process at a time runs a job, under the lease replay-<id>: the process that got the request,
// or one whose sweep found the row and the lease free.
//
// # The walk
//
// A job first counts its messages: those that are dead at that time. It excludes messages that die
// later, because it may have replayed them itself. The job visits one lane after the other, and each
// lane in the order of its log. But it replays all messages of a key together, in order, when it
// reaches the first of them. If it replayed the second long after the first, a new message of the key
// could be delivered in between, and the second replay would then be refused.
//
// The job stores each batch and its position in the walk before it replays the batch, and stores the
// results afterwards. A batch has the messages that the rate allows in two seconds, or the messages of
// one key; it has at most fifty. If a key has more, the next batch follows without a pause.
//
// # Outcomes
//
// Replayed messages are open until they are final. The job reads their rows every two seconds while
// messages become final, and less and less often otherwise. At most five hundred are open at a time,
// so a paused lane, or a CMS that is down, also stops the walk. Jobs themselves ignore pauses: holders
// grant their requests, and only the delivery waits.
//
// # Invariants
//
//   - matched = replayed + refused + skipped + messages that the walk has not reached
//   - replayed = delivered + deadAgain + otherwise + waiting
//   - No job replays a message twice. The job requests a replay only if the message is still among the
//     lane's dead messages with the time of death that the walk has read.
//
// # Failure
//
// The process that resumes a job continues with the stored batch. If a message of the batch is not dead
// any more, or died again, the earlier process requested its replay, and it counts as replayed. A
// replay is a request row, so requesting it again changes nothing. Refusals that were counted and not
// stored are counted again; a job that is done counts them anew.
//
// Every write of a job's row is conditional on its ETag. If a process has lost the lease and does not
// know it yet, its write fails, and it stops because another process has written the row.
package replay
