// Package history keeps what happened, minute by minute, over all instances and restarts:
// how much was accepted and delivered, how long it took, how much waited, and what it cost
// in storage transactions.
//
// # State
//
// An instance counts in memory. The minutes of an hour stand in one row of the partition
// "history", <hour>_<instance>, which the instance writes anew as minutes are added: so an
// hour of an instance is one row to read, and a minute one transaction to write.
//
// # Invariants
//
//   - An instance makes at most one storage transaction a minute, clearing up included: where
//     there is something to clear up, that takes the turn of a write, and the next write has
//     both minutes.
//   - A minute in which nothing was done is not written, so an idle instance costs nothing;
//     what waits is noted when it changes, and each ten minutes. What was asked of storage
//     meanwhile is added to the next minute that is written.
//   - Each process has a name of its own, so no two write the same row.
//
// # Failure
//
// A write that fails is made up for by the next, for it has the whole hour. A process that
// is killed loses the minute it was in; one that stops in order writes it.
package history
