// Package embedded implements the storage ports on one file in a folder of this machine, so that
// Weir runs without a storage account.
//
//	store, err := embedded.Open(dir, embedded.Options{Program: "weir serve"})
//	defer store.Close()
//	table, bodies, leases := store.Table(), store.Bodies(), store.Leases()
//
// Store has the methods of azure.Account: Table, Tickets, Poison, InboxEvents, Bodies, Leases,
// LeaseBlobs, Inbox, Accepted, Rejected, Ensure, Skew and Close.
//
// The folder has these files:
//
//	weir.db    all rows, blobs, files and queue messages: one bbolt database
//	weir.lock  the lock of the folder, with the process that has it
//
// One process at a time has the folder: a second Open returns *InUseError. So leases are in memory,
// and after a crash every lease is free at once. Fences are in the lanes' rows as with every store,
// so the next holder still sees that the previous one was interrupted, and keeps the settle time.
//
// # Durability
//
// A write is on disk before its call returns. Writes of all callers that wait at the same time
// share one commit of the database (see committer). In a commit each write stands alone: if the
// condition of one does not hold, this one is refused, and the others are done. A commit writes
// pages that no valid state refers to, syncs them, then writes and syncs one page that makes the
// new state valid. So a process that dies at any moment, or a power cut, leaves the state after
// some whole commit. All rows and blobs are in one file, and commits are in one order: if a row is
// durable, then so is each blob that was written before the row.
//
// A reader has a snapshot: it sees the state after one whole commit, while others write.
//
// # Errors
//
// If the disk is full, a write fails with storage.Unavailable, nothing of it is done, and later
// writes succeed when there is space again. If the disk fails in the last step of a commit, its
// result is unknown: the write fails with storage.Ambiguous, all later calls fail, and
// Options.OnBroken is called, because only a process that opens the file anew can find out.
// Each row, blob and message has a checksum, so that damaged bytes are an error and no value.
package embedded
