// Package schema tests that the stored format stays as it is: the key of each kind of row, each column
// with its type, the names of blobs and leases, the texts of tickets. It has no code of the program.
//
// A new release reads the rows of the one before it, and for some minutes both write to the same
// lanes. So messages are lost if a key or a column changes its name or its type. A test that knows one
// release only cannot notice that.
//
// The test runs the real parts (appender, drainer, sender of notifications, schedules, bulk
// replays, retention, history, change of the number of lanes) on storage in memory, in virtual
// time, and makes them use each feature once. It records every write and compares the shapes with
// testdata/schema.golden. A shape that is written but unknown fails, and so does one that is known
// but no longer written. To accept an intended change:
//
//	go test ./internal/schema -update
package schema
