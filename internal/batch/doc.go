// Package batch turns posted documents into messages: the parts of one XML document, or the files of a zip or of
// multipart.
//
// # State
//
//	Accept ──▶ checking ──▶ filing ──▶ filed
//	               │           └──▶ cancelled
//	               └──▶ rejected, or cancelled
//
// Accept stores the document in chunks, and then its rows in one transaction. From then on the batch is durable. One
// process at a time works on it, under the lease batch-<id>: the process that accepted it, a process that got a
// request to cancel it, or a process whose sweep found the batch and the lease free. After maxFailures failures
// without progress the process leaves the batch to the next sweep. So a batch that cannot go on does not delay the
// other batches of its process for long. The process first checks all parts, and writes the problems. A document that
// is not well-formed is rejected as a whole, because the borders of its parts are not certain. Then the process files
// the valid parts, each as one message.
//
// # Order and repeats
//
// A window is a run of consecutive parts; the number and the bytes of its parts are limited. Parts are filed window by
// window. Within a window, parts of one key are filed one after the other. Parts of at most appendsAtOnce keys are
// filed at the same time, so that posts still fit into the transactions of a lane. Part n of batch b has the
// idempotency key batch-<b>-<n>. The batch's row has the number of the first part of the next window. After a crash
// another process reads the document from its beginning, skips the parts before that number, and files the window
// again. Parts of the window that were filed before the crash get no second message, because of their idempotency keys.
//
// # Rows and blobs
//
// All rows are in the partition "batches". The row <id> has the batch. The row !<id> exists until the work on the batch
// is done, so that a sweep finds all unfinished batches with one query. The row i_<hash> has the id of the batch that
// was posted with an idempotency key; it is removed if the batch is rejected. Ids begin with the time left until the
// year 2286, so that the newest batch sorts first.
//
// The blobs of a batch have names below batches/<id>/: document/<chunk>, problems, and ids/<first part> with the ids
// of the messages of one window. The document is removed when the batch is final. From then on these blobs have no copy
// of a message's content.
//
// # Memory
//
// A process works on one batch at a time. In memory it has one chunk, one part, one window, the problems, and the
// directory of a zip. Each Accept also has one chunk in memory.
package batch
