// Package audit records each change that a person or a program makes through the API, or by a command that opens
// storage: who, what, when and from where. It also records each reveal. It does not record posted messages and batches,
// because they have rows of their own.
//
// An entry is a row of the partition "audit"; the newest comes first. Record inserts the row after the change and
// before the answer. Record also writes the entry to the process's log, so an entry that storage refuses is not lost.
// An entry has the beginning of the function key's hash (Fingerprint), but no function key and no message body. Earlier
// versions of Weir ignore the rows.
package audit
