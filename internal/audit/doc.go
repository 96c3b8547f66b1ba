// Package audit records each change that a person or a program makes through the API or a command: who,
// what, when and from where.
//
// An entry is a row of the partition "audit", newest first. Record inserts it after the change and before
// the answer; the log gets a line with the same content, so an entry that storage refuses is not lost.
// An entry has no function key, only the beginning of its hash (Fingerprint), and no message body.
// Instances of older versions ignore the rows.
package audit
