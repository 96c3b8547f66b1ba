// Package batch turns batches into messages. A batch is an XML document, a zip or a multipart body.
// The parts of a batch are the elements that the split paths select, or whole files. Each valid
// part becomes one message.
//
// # State
//
//	Accept ──▶ checking ──▶ filing ──▶ filed
//	               │           └──▶ cancelled
//	               └──▶ rejected, or cancelled
//
// Accept stores the document in chunks, and then the rows of the batch in one transaction. After
// that transaction the batch is durable.
//
// One process at a time works on a batch, as a job of package job, under the lease batch-<id>: the
// process that accepted the batch, a process that got a request to cancel the batch, or a process
// whose sweep found the batch unfinished. The batches of different upstreams work in shifts in a
// process; see the type shifts. A batch that cannot go on by its own fault ends after
// stuckPatience; see judgeStuck.
//
// In the state "checking" the process checks all parts, and stores the problems of the invalid
// parts. A document that is not well-formed is rejected as a whole, because the borders of its
// parts are not certain. In the state "filing" the process appends the valid parts to their lanes,
// each as one message.
//
// # Order and repeats
//
// Parts are appended window by window. A window is a run of consecutive parts; the number and the
// bytes of its parts are limited. Within a window, appendsAtOnce consecutive parts are appended at
// a time. Those of one lane are appended in order, with as few transactions as they fit into. If
// one fails, no later part of its lane is appended before it. Part n of batch b has the idempotency
// key batch-<b>-<n>.
//
// The batch's row has the number of the next window's first part. After a crash another process
// reads the document from its beginning, skips the parts before that number, and appends the window
// again. A part that was appended before the crash gets no second message, because its idempotency
// key is known.
//
// # Rows and blobs
//
// All rows are in the partition "batches". Their keys are:
//
//   - <id>: the row has the batch.
//   - !<id>: the row exists until the work on the batch is done. A sweep finds all unfinished
//     batches by these rows.
//   - i_<hash>: the row has the id of the batch that was posted with an idempotency key. The row is
//     removed if the batch is rejected.
//
// Ids begin with the time left until the year 2286, so that the newest batch sorts first.
//
// The names of a batch's blobs begin with batches/<id>/:
//
//   - document/<chunk> is a chunk of the document. The chunks are removed when the batch is final,
//     so that no blob of the batch still has content of messages.
//   - problems has the problems of the invalid parts.
//   - ids/<first part> has the message ids of one window.
//
// # Memory
//
// A process has maxOpen batches open. Of the one that has the shift, it has cachedChunks chunks,
// one part, one window, the problems, and the directory of a zip in memory; of the others only a
// part, a window and the problems. In addition, each running call of Accept has one chunk in
// memory.
package batch
