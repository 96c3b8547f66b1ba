// Package rows has the stored format of a lane: the keys of its rows, and their columns with their
// types. It also reads rows page by page, and updates rows under a condition.
//
// Names of rows and columns never change, because other versions of the program have written them
// to storage. So a stored name can differ from its Go identifier. The tests of package schema fail
// if a stored name changes.
//
//	v := row.Values
//	seq, stage := rows.Seq.Of(v), rows.Stage.Of(v)
//	op.Values = rows.Values(rows.Stage.Is("dead"), rows.FinishedAt.Is(now))
package rows
