// Package history keeps statistics for each minute, over all instances and restarts: the accepted
// and the final messages, the attempts, the durations, the waiting messages, and the storage
// transactions.
//
// # State
//
// An instance counts in memory. For each hour it has one row, <hour>_<instance> in the partition
// "history", with the minutes of that hour. After a minute the instance writes the row again, in
// one transaction.
//
// # Invariants
//
//   - Until Leave or Close is called, an instance makes at most one storage transaction a minute.
//     Reads for callers come in addition. A cleanup (removal of expired rows) can take the place of
//     a write. Then the next write also has the minutes that were left out.
//   - A minute without activity is not written, so an idle instance costs no transaction. The
//     number of waiting messages is recorded when it changes. While this number is not 0, it is
//     also recorded every ten minutes. The next written minute also counts the storage transactions
//     that were made in minutes without a row.
//   - Each process has a random name, so no two processes write the same row.
//
// # Failure
//
// The next write repairs a failed write, because it has all minutes of the hour. A process that is
// killed loses the minutes that it has not written: usually the present minute, and perhaps the one
// before. A process that ends in order does not lose them, because Close writes them.
//
// A host that stops kills the handler's process without a warning. So a process that notices the
// stop calls Leave. After that, the Keeper writes the present minute within 50 ms of each change.
package history
