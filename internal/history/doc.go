// Package history keeps a time series with one point a minute, over all instances and restarts: the
// messages accepted and delivered, the durations, the waiting messages, and the storage
// transactions.
//
// # State
//
// An instance counts in memory. The minutes of an hour stand in one row of the partition "history",
// <hour>_<instance>, which the instance rewrites as minutes are added. So an hour of an instance is
// one row to read, and a minute one transaction to write.
//
// # Invariants
//
//   - An instance makes at most one storage transaction a minute, cleanup included: a cleanup
//     takes the place of a write, and the next write has both minutes.
//   - A minute without activity is not written, so an idle instance costs no transaction. The
//     number of waiting messages is recorded when it changes, and each ten minutes. The
//     transactions of unwritten minutes are added to the next minute that is written.
//   - Each process has a name of its own, so that no two write the same row.
//
// # Failure
//
// A failed write is repaired by the next one, which has the whole hour. A process that is killed
// loses its present minute; one that stops in order writes it. A host that stops kills its process
// without a signal, so a process that notices the stop calls Leave: from then on the present minute
// is written within leavingInterval of each change.
package history
