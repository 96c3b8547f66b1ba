// Package simulation proves Weir's promises in virtual time. It has no code of the program. Its tests wire the real
// parts together (appender, ticket sender, drainer, the functions for tickets and timers, the CMS client) as several
// instances over one storage account in memory. The tests break everything around these parts as a seed decides, and
// check each step.
//
// # One run, in order
//
//  1. drawSettings (world_test.go) draws the settings of the seed: instances, lanes, messages, keys, kinds of faults.
//  2. liveThrough creates the lanes in storage, puts the schedule, and starts one process in each slot. A slot is an
//     instance of the platform; process_test.go wires a process as internal/app does.
//  3. Upstreams post messages (upstream_test.go), cancel and move them (changes_test.go). Operators replay messages
//     (replays_test.go, bulk_test.go), discard them (discards_test.go) and erase them (erasures_test.go). They pause
//     and resume lanes and keys (pauses_test.go), and have versions forgotten (forgets_test.go). The host delivers
//     tickets and calls the sweep (host_test.go).
//  4. Meanwhile the faults happen: crashes, standstills, cuts, clock jumps, stops (process_test.go), traps at a certain
//     operation (traps_test.go), storage faults (ports_test.go), failures of the CMS (cms_test.go).
//  5. The checker (checker_test.go) sees each transaction when it takes effect and each request when it reaches the CMS
//     and when it leaves it. It checks the six promises at that instant, and notes the first violation.
//  6. When the time of faults is over, awaitRest waits until all work is done, for eight minutes at most after the last
//     due time. Some seeds then file messages that the CMS refuses (refused_test.go).
//  7. checkAtRest (rest_test.go) counts everything again from the rows. Some seeds then let days pass for retention
//     (ages_test.go). At the end the history of each key goes to internal/testkit/linear, whose checker others wrote
//     (histories_test.go).
//
// TestSeeds runs usual worlds, and TestLarge large ones (sizes_test.go). In TestShortPages storage cuts most pages
// (short_pages_test.go). In TestMoves instances leave in order (moves_test.go). In TestKillers a message ends the
// processes that send it (killers_test.go). In TestChains a message takes several requests to a stock CMS
// (chains_test.go, chain_cms_test.go). TestRelane changes the number of lanes (relane_test.go). TestMutants_AreCaught
// takes one rule of the engine away at a time and expects a violation (mutants_test.go); other tests do so with the
// mutants of the other worlds.
//
// # Replay
//
// All chances are drawn from the seed by name: a draw depends only on its process, its operation, and the number of
// earlier draws with the same two. So chances do not depend on the order in which goroutines run, and a seed that
// failed once fails again. docs/simulation.md describes the few exceptions, and how to run a seed.
package simulation
