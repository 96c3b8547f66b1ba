// Package audit records each change that a person or a program makes through the API or by a command: who,
// what, when and from where.
//
// An entry is a row of the partition "audit", newest first. Record inserts it after the change and before the
// answer. It also logs the same content, so an entry that storage refuses is not lost. An entry has the
// beginning of the function key's hash (Fingerprint), but no function key and no message body. Earlier versions
// ignore the rows.
package audit
