// Package simulation tests Weir's promises in virtual time. It has only tests, and this description
// of them. The tests wire the real parts together: the appender, the ticket sender, the drainer,
// the functions for tickets and timers, and the CMS client. Several instances of these parts run
// over one storage account in memory. A seed decides which faults happen around these parts. A
// checker checks each step.
//
// # One run, in order
//
// A run simulates one world from one seed.
//
//  1. drawSettings (world_test.go) draws the settings from the seed: the numbers of instances,
//     lanes, messages and keys, and the kinds of faults.
//  2. liveThrough creates the lanes in storage, stores the schedule of a recurring message, and
//     starts one process in each slot. A slot is an instance of the platform. process_test.go wires
//     a process as internal/app does.
//  3. Upstreams post messages (upstream_test.go), cancel messages, and change due times
//     (changes_test.go). Operators replay messages (replays_test.go, bulk_test.go), discard
//     messages (discards_test.go), and erase messages (erasures_test.go). Operators also pause and
//     resume lanes and keys (pauses_test.go), and ask holders to forget versions (forgets_test.go).
//     The host delivers tickets and calls the sweep (host_test.go).
//  4. Meanwhile faults happen. Processes crash, stall, stop in order, or cannot reach storage, and
//     their clocks jump (process_test.go). Some processes crash or stall exactly at a certain
//     operation (traps_test.go). Operations of storage fail (ports_test.go), and requests to the
//     CMS fail (cms_test.go).
//  5. The checker (checker_test.go) is called when a transaction takes effect, when a request
//     reaches the CMS, and when the CMS has finished with the request. It checks the promises at
//     that instant, and keeps the first violation.
//  6. When the time of faults is over, awaitRest waits until all work is done; the wait has a time
//     limit. In some runs upstreams then post messages that the CMS refuses (refused_test.go).
//  7. checkAtRest (rest_test.go) counts the messages again from their rows in storage. In some runs
//     days then pass, so that retention removes messages (ages_test.go). At the end
//     internal/testkit/linear compares the history of each key with a model, by means of a
//     third-party checker (histories_test.go).
//
// # Kinds of worlds
//
//   - TestSeeds (seeds_test.go) runs ordinary worlds.
//   - TestLarge (sizes_test.go) runs worlds with thousands of messages, or with many lanes.
//   - TestShortPages (short_pages_test.go): storage answers most queries with fewer rows than the
//     caller asked for.
//   - TestMoves (moves_test.go): there are no faults, but the platform removes instances in order.
//   - TestKillers (killers_test.go): one message ends each process that sends it.
//   - TestBatches (batches_test.go): many parts of a batch are appended with one call.
//   - TestAudits (audits_test.go): operators' changes are entries of the audit log, which erasures
//     redact.
//   - TestChains (chains_test.go, chain_cms_test.go): a chain of several requests writes each
//     message to the CMS.
//   - TestRelane (relane_test.go): the number of lanes changes.
//
// # Mutants
//
// A mutant is the program without one of its rules. TestMutants_AreCaught (mutants_test.go) runs
// ordinary worlds with one mutant at a time, and expects a violation. For each other kind of worlds
// a similar test runs the mutants that only such worlds can show.
//
// # Replay
//
// Each random value is drawn by a name, for example by the name of a process and its operation. In
// each run of a seed the n-th draw of a name has the same value, in whatever order goroutines run.
// So a seed that failed once fails again. docs/simulation.md describes the few exceptions, and how
// to run a seed.
package simulation
