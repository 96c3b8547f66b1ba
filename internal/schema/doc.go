// Package schema tests that the stored format stays the same: the key of each kind of row, each
// column with its type, the names of blobs and leases, the texts of tickets. The package has no
// code of the program.
//
// A new release reads rows that the previous release wrote, and for some minutes both releases
// write to the same lanes. If a key or a column had another name or type in the new release,
// messages could get lost. A test that writes and reads with one release cannot notice such a
// change.
//
// The test runs the real parts on storage in memory and in virtual time: appender, drainer, sender
// of notifications, schedules, batches, bulk replays, retention, history, quotas, audit log, and
// the change of the number of lanes. It uses each feature that writes to storage, and records the
// shape of each row, blob, lease and ticket. A shape is a key or a name with its variable parts
// replaced, such as m_<19 digits>. The shape of a row also has the columns with their types.
//
// The test fails if the recorded shapes differ from testdata/schema.golden. A new kind of row,
// blob, lease or ticket also needs an entry in the map "kinds" in schema_test.go. This command
// accepts an intended change:
//
//	go test ./internal/schema -update
package schema
