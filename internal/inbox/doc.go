// Package inbox takes the files that other systems put into a container: each becomes a message or a batch.
//
// # The way of a file
//
//	inbox ──▶ message ──▶ accepted
//	      ──▶ batch   ──▶ accepted; rejected, if the batch is rejected
//	      ──▶ rejected, with a problems file beside it
//
// One process at a time takes files, under the lease "inbox". It lists the inbox, and takes the files in the order of
// their last modification. It files the messages of one key one after the other, and those of other keys at the same
// time. If storage cannot be reached, the run ends, and the next run begins with the same file: so no file
// overtakes an earlier one of its key.
//
// # Once
//
// A name and an ETag identify a version of a file. The idempotency key of its message or batch is derived from both.
// Each step can be repeated: file the message, write the copy, delete the version from the inbox. After a crash between
// two steps another process takes the file again from the first step on, and finds the message or batch by its key. A
// file that is overwritten meanwhile has another ETag. So the delete fails, and a later run takes the file as a new
// one.
//
// # Incomplete files
//
// Storage shows a block blob only when it is whole. An append blob or a page blob grows while it is written, and an
// upload by SFTP is an empty blob until its end. Such files are left in the inbox until they have not changed for a
// time; see Config.Quiet. A change during the read fails the read, because each read names the ETag.
package inbox
