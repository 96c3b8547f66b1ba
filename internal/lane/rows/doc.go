// Package rows has the stored format of a lane: the keys of its rows, their columns with their types,
// and the ways in which rows are read page by page and updated under a condition.
//
// The names of rows and columns are data that other versions of the program have written: they never
// change, even if an identifier here has a better name. Package schema tests that.
//
//	v := row.Values
//	seq, stage := rows.Seq.Of(v), rows.Stage.Of(v)
//	op.Values = rows.Values(rows.Stage.Is("dead"), rows.FinishedAt.Is(now))
package rows
