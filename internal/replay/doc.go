// Package replay replays the dead messages that match a filter, in bulk and at a limited rate. Such
// a bulk replay is a job. A job stops if too many of its messages die again.
//
// # State
//
//	Start ──▶ running ──all final──▶ done
//	             ├──too many are dead again──▶ stopped
//	             └──Cancel──▶ cancelled
//
// A running job has a row in lane 0 (!replay_<id>), which every process reads with the control rows
// of lane 0. So each sweep finds the jobs whose process has died, without a further query. The
// process that ends a job writes a row into the partition "replays", and then removes the row in
// lane 0. A job with a row in "replays" is over, even if its row in lane 0 still exists.
//
// One process at a time runs a job, under the lease replay-<id>. The process that accepted the
// request for the job starts the job. If that process dies, the lease expires, and a process whose
// sweep finds the row resumes the job.
//
// # The order of the replays
//
// A job first counts its messages: the messages that match the filter and are dead at that time. A
// message that dies later does not belong to the job, because the job itself can have replayed that
// message.
//
// The job reads one lane after the other, each in the order of its log. When the job reaches the
// first message of a key, it replays all messages of that key together, in order. Otherwise a new
// message of the key could be delivered in between, and the holder would refuse the remaining
// replays of the key.
//
// The job replays its messages in portions. It stores each portion, with its position in the lane,
// before it requests the replays, and stores the results afterwards. A portion has as many messages
// as the rate allows in two seconds, but at least one. Further messages of the last key are added,
// up to fifty messages in the portion. If that key has still more messages, the next portion
// follows without a pause.
//
// # Outcomes
//
// A replayed message is open until it is final. The job reads the rows of the open messages every
// two seconds. If no open message has become final, the job doubles this interval, up to thirty
// seconds. At most five hundred messages are open at a time. So if nothing is delivered, because a
// lane is paused or the CMS is down, the job soon requests no further replays. A pause does not
// stop a job: holders grant requests in a paused lane, and only the deliveries wait.
//
// # Invariants
//
//   - replayed = delivered + deadAgain + otherwise (cancelled, superseded, discarded or removed) +
//     waiting (open)
//   - When a job is done: matched = replayed + refused + skipped (no longer dead when the job
//     reached the message)
//   - No job replays a message twice. The job requests a replay only if the message is still dead,
//     with the time of death that the job has stored in the portion.
//
// # Failure
//
// The process that resumes a job continues with the stored portion. Perhaps the former process has
// already requested some replays of the portion:
//
//   - If a message is no longer dead, or has another time of death, the process counts the message
//     as replayed.
//   - If a message is still dead, the process requests the replay, perhaps for the second time. A
//     second request changes nothing, because it writes the same row. But if the request is
//     refused, the refusal can be counted twice.
//
// So before a job is done, the process counts the messages of the job that are still dead, and
// stores their number as refused.
//
// Every write of a running job's row is conditional on the row's ETag. If another process has
// resumed the job and written the row, the next write of the former process fails, and the former
// process stops running the job.
package replay
