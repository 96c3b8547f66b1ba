// Package history keeps a time series with one point a minute, over all instances and restarts: the messages that were
// accepted and that became final, the attempts, the durations, the waiting messages, and the storage transactions.
//
// # State
//
// An instance counts in memory. The minutes of an hour stand in one row of the partition "history", <hour>_<instance>,
// which the instance writes again with each further minute. So one row has an hour of an instance, and one transaction
// writes a minute.
//
// # Invariants
//
//   - Apart from reads for callers, an instance makes at most one storage transaction a minute until it leaves or is
//     closed. A cleanup takes the place of a write. The next write then has the minutes of both.
//   - A minute without activity is not written, so an idle instance costs no transaction. The number of waiting
//     messages is recorded when it changes and, if it is not 0, each ten minutes. The transactions of unwritten minutes
//     are added to the next minute that is written.
//   - Each process has a random name, so no two processes write the same row.
//
// # Failure
//
// The next write repairs a failed write, because it has all minutes of the hour. A process that is killed loses the
// minutes that it has not written: as a rule the present one and perhaps the one before. Close writes them. A host that
// stops kills its process without a signal. So a process that notices the stop calls Leave: from then on the Keeper
// writes the present minute within leavingInterval of each change.
package history
