// Package inbox takes the files that other systems put into a container. Each file becomes a message or a
// batch.
//
// # The way of a file
//
//	inbox ──▶ message ──▶ accepted
//	      ──▶ batch   ──▶ accepted; rejected, if the batch is rejected
//	      ──▶ rejected, with a problems file beside it
//
// A file that is too large to be copied stays in the inbox, and its problems file is among the rejected files.
//
// One process at a time takes files, under the lease "inbox". It lists the inbox, and takes the files in the order of
// their last modification. It files the messages of one key one after the other, and messages of different keys at the
// same time. If storage cannot be reached, the run ends, and the next run begins with the same file. So no file with a
// message overtakes an earlier file with a message of the same key. The only exception is a file whose error concerns
// this file alone, such as a panic: it stays in the inbox, and the run takes the later files. The parts of a batch are
// filed later, by package batch.
//
// # Each file once
//
// A name and an ETag identify a version of a file. The idempotency key of its message or batch is derived from
// both. The steps are: file the message, write the copy, delete the version from the inbox. For a batch the copy
// is written first. Each step can be repeated. After a crash between two steps, another process takes the file
// again from the first step on, and finds the message or batch by its key. If a file is overwritten in the
// meantime, it has another ETag. So the delete fails, and a later run takes the file as a new one.
//
// # Incomplete files
//
// Storage shows a block blob only when it is complete. An append blob or a page blob grows while it is written,
// and an upload by SFTP is an empty blob until its end. Such files stay in the inbox until they have not
// changed for a time; see Config.Quiet. If a file changes while it is read, the read fails, because each read
// names the ETag.
package inbox
