// Package inbox takes the files that other systems put into a container. Each file becomes a
// message or a batch.
//
// # The way of a file
//
//	inbox ──▶ message ──▶ accepted
//	      ──▶ batch   ──▶ accepted; rejected, if the batch is rejected
//	      ──▶ rejected, with a problems file beside it
//
// A file that is too large to be copied stays in the inbox, and its problems file is among the
// rejected files.
//
// One process at a time takes files, under the lease "inbox". It lists the inbox, and takes the
// files in the order of their last modification. It appends the messages of one key one after the
// other, and messages of different keys at the same time. If storage cannot be reached, the run
// ends, and the next run begins with the file that failed. So no message overtakes the message of
// an earlier file with the same key.
//
// This order has two exceptions. If an error concerns one file alone, such as a panic, the file
// stays in the inbox, and the run takes the later files. Package batch appends the parts of a batch
// later, maybe after messages of later files.
//
// # Each file once
//
// A name and an ETag identify a version of a file. The idempotency key of a message or batch is
// derived from the name and the ETag of its file. A file with a message is taken in three steps:
// append the message, copy the file to the accepted files, delete the version from the inbox. The
// file of a batch is copied before the batch is accepted.
//
// Each step can be repeated. After a crash between two steps, another process takes the file again
// from the first step on, and finds the message or batch by its idempotency key. If the file is
// overwritten between two steps, its ETag changes. So the delete fails, and a later run takes the
// new version.
//
// # Incomplete files
//
// Storage shows a block blob only when it is complete. An append blob or a page blob grows while it
// is written, and an upload by SFTP is an empty blob until its end. Such files stay in the inbox
// until they have not changed for a time; see Config.Quiet. Each read names the ETag, so a read
// fails if the file has changed.
package inbox
