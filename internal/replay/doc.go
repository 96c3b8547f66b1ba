// Package replay replays the dead messages that match a filter, in bulk and at a limited rate. Such a bulk replay is a
// job. A job stops if too many of its messages die again.
//
// # State
//
//	Start ──▶ running ──all final──▶ done
//	             ├──too many are dead again──▶ stopped
//	             └──Cancel──▶ cancelled
//
// A running job is a row of lane 0 (!replay_<id>), which every process reads with the control rows of that lane. So
// each sweep finds the jobs whose process has died, without a further query. The process that ends a job writes a row
// into the partition "replays", and then removes the row of lane 0. A job with a row in "replays" is over, even if it
// still has a row of lane 0.
//
// One process at a time runs a job, under the lease replay-<id>. It is the process that got the request, or a process
// whose sweep found the row while the lease was free.
//
// # The order of the replays
//
// A job first counts its messages, which are the matching messages that are dead at that time. It excludes messages
// that die later, because the job may have replayed them itself. The job reads one lane after the other, and each lane
// in the order of its log. But it replays all messages of a key together, in order, when it reaches the first of them.
// If it replayed the second message long after the first, a new message of the key could be delivered in between. The
// replay of the second message would then be refused.
//
// Before the job replays a batch, it stores the batch and the job's position in the lane. It stores the results
// afterwards. A batch has as many messages as the rate allows in two seconds. If the last key of the batch has further
// messages, they are added, up to fifty messages in the batch. If the key has still more messages, the next batch
// follows without a pause.
//
// # Outcomes
//
// A replayed message is open until it is final. The job reads the rows of the open messages every two seconds while
// messages become final. Otherwise it doubles the interval after each read, up to thirty seconds. At most five hundred
// messages are open at a time. So while a lane is paused, or a CMS is down, the job soon requests no further replays. A
// job ignores pauses: holders grant its requests in a paused lane, and only the deliveries wait.
//
// # Invariants
//
//   - replayed = delivered + deadAgain + otherwise (cancelled, superseded, discarded or removed) + waiting (open)
//   - When a job is done: matched = replayed + refused + skipped
//   - No job replays a message twice. The job requests a replay only if the message is still dead, and died at the
//     time that the job has read before.
//
// # Failure
//
// The process that resumes a job continues with the stored batch. If a message of the batch is not dead any more, or
// died again, the process assumes that the earlier process requested its replay, and counts it as replayed. A replay is
// requested by a row, so a second request for the same message changes nothing. After a crash the next process
// requests some replays a second time, and counts their refusals again. So a job that is done counts its refusals anew,
// from the messages that are still dead.
//
// Every write of a running job's row is conditional on its ETag. If a process has lost the lease and does not know it
// yet, its write fails as soon as another process has written the row, and the process that lost the lease stops.
package replay
