// Package batch turns posted documents into messages: the parts of one XML document, or the files of a zip or of
// multipart.
//
// # State
//
//	Accept ──▶ checking ──▶ filing ──▶ filed
//	               │           └──▶ cancelled
//	               └──▶ rejected, or cancelled
//
// Accept stores the document in chunks, and then one row. From then on the batch is durable. One process at a time
// works on it, under the lease batch-<id>: the process that accepted it, or a process whose sweep found the batch and
// the lease free. After maxFailures failures in a row the process leaves the batch to the next sweep. So a batch that
// cannot go on does not hold back the other batches of its process. The process first checks all parts, and writes the
// problems. A document that is not well-formed is rejected as a whole, because the borders of its parts are not
// certain. Then the process files the valid parts, each as one message.
//
// # Order and repeats
//
// A window is a run of consecutive parts of bounded size. Parts are filed window by window. Within a window, parts of
// one key are filed one after the other. Parts of at most appendsAtOnce keys are filed at the same time, so that the
// process still has room for posts. Part n of batch b has the idempotency key batch-<b>-<n>. The row has the number of
// the first part of the next window. After a crash another process reads the document from its beginning, skips the
// parts before that number, and files the window again. Parts of the window that were filed before the crash get no
// second message, because of their idempotency keys.
//
// # Rows and blobs
//
// All rows are in the partition "batches". The row <id> has the batch. The row !<id> exists until the batch is final,
// so that a sweep finds all unfinished batches with one query. The row i_<hash> has the id of the batch that was posted
// with an idempotency key. Ids begin with the time left until the year 2286, so that the newest batch sorts first.
//
// The blobs of a batch have names below batches/<id>/: document/<chunk>, problems, and ids/<first part> with the ids
// of the messages of one window. The document is removed when the batch is final. So no copy of an erased message is
// left in these blobs.
//
// # Memory
//
// A process works on one batch at a time. It has in memory one chunk, one part, and one window.
package batch
