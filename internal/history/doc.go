// Package history keeps a time series with one point a minute, over all instances and restarts: the messages that were
// accepted and that became final, the attempts, the durations, the waiting messages, and the storage transactions.
//
// # State
//
// An instance counts in memory. One row has the minutes of one hour of one instance: the row <hour>_<instance> in the
// partition "history". The instance writes this row again with each further minute. So one transaction writes a minute.
//
// # Invariants
//
//   - Apart from reads for callers, an instance makes at most one storage transaction a minute until it leaves or is
//     closed. A cleanup takes the place of a write. The next write then also has the minutes that the replaced write
//     would have had.
//   - A minute without activity is not written, so an idle instance costs no transaction. The number of waiting
//     messages is recorded when it changes and, if it is not 0, each ten minutes. The transactions of unwritten minutes
//     are added to the next minute that is written.
//   - Each process has a random name, so no two processes write the same row.
//
// # Failure
//
// The next write repairs a failed write, because it has all minutes of the hour. A process that is killed loses the
// minutes that it has not written: as a rule the present one and perhaps the one before. Close writes these minutes. A
// host that stops kills its process without a signal. So a process that notices the stop calls Leave: from then on the
// Keeper writes the present minute within leavingInterval of each change.
package history
