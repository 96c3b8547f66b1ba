// Package simulation proves Weir's promises in virtual time. It holds no code of the
// program: its tests put the real parts together (appender, bell, drainer, the functions
// for tickets and timers, the CMS client) as several instances over one storage account in
// memory, break everything around them by a seed, and watch.
//
// # What is simulated
//
// Instances that are killed at any moment, stopped in order, or stand still past their
// lease and go on; clocks that differ by up to two seconds; a host that delivers tickets
// (hidden ten minutes in hand, back at once after a failure, poison after five) and calls
// the sweep; storage whose every operation may fail before or after it was done, hang, or
// arrive late; a CMS that is slow, refuses, is down, redirects, loses connections, or
// still works on what its client has given up. Upstreams send again what was not answered
// with 202, give messages due times, cancel and move them; operators replay and edit what
// is dead; a schedule recurs. After a while the faults end, and everything has to come to
// rest.
//
// # What is held
//
// The checker (checker_test.go) sees every transaction when it takes effect and every
// request when it reaches the CMS and leaves it, and holds the six promises at that moment;
// at the end it counts everything again.
//
// # Replay
//
// All chances are drawn by name from the seed: the n-th time of this operation by this
// process. So they do not depend on the order in which goroutines run, and a seed that
// fails, fails again. docs/simulation.md says how to run it.
package simulation
