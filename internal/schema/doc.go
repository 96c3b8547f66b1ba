// Package schema tests that the stored format stays as it is: the key of each kind of row, each column
// with its type, the names of blobs and leases, the texts of tickets. It has no code of the program.
//
// A new release reads the rows of the release before it, and for some minutes both releases write to the same lanes.
// If a key or a column changes its name or its type, messages can get lost. A test that writes and reads with one
// release cannot notice that.
//
// The test runs the real parts on storage in memory and in virtual time: appender, drainer, sender of notifications,
// schedules, batches, bulk replays, retention, history, quotas, audit log, and the change of the number of lanes. It
// makes these parts use each feature. It records the shapes of all rows, blobs, leases and tickets that they write,
// and compares the shapes with testdata/schema.golden. The test fails if the run writes an unknown shape, or no longer
// writes a known one. A new kind of row, blob, lease or ticket also needs an entry in the map kinds of schema_test.go.
// This command accepts an intended change:
//
//	go test ./internal/schema -update
package schema
