// Package transfer moves everything from one store to another, such as from a folder to a storage
// account, for the command weir copy. Only one of the two stores is in use at any moment.
//
// # State
//
// The row meta/lanes of both stores has the state. Each write of it is conditional on the one
// before:
//
//	source              target             state
//	(none)              no row             nothing has begun; the target has no row and no blob
//	leave               no row             the source takes no messages, and no process serves it
//	leave               arrive             rows and blobs are copied
//	left                arrive             everything is copied and compared
//	left                (none)             the target is in use
//
// Both rows have the same random id of the move. So a half copy is only continued from its own
// source. From leave on and until left, weir copy --undo leads back to (none), and the half copy is
// then never opened again.
//
// # Invariants
//
//   - No process opens a store whose row has one of these steps. A process that runs notices the
//     step at its next look, at once if it meets a sealed lane, and ends.
//   - Before the first row is read, each lane of the source is sealed and closed. So no message is
//     accepted, delivered or changed any more. The copies of the control rows are neither sealed
//     nor closed; all other rows are equal.
//   - The copy is a comparison: both stores are read in the order of their keys, and each
//     difference is written to the target. So the copy can be killed at any moment and continued,
//     and a pass without writes proves that both are equal.
//   - Each transaction of the copy changes a guard row of its partition under If-Match. The guards
//     are removed before the target is opened. So no late transaction of a killed copy changes a
//     target that is in use.
//
// Leases, ETags and queue messages are not copied: leases end with their holder, ETags are
// storage's own, and each process looks at all lanes when it starts.
package transfer
