// Package audit records each change that a person or a program makes through the API, or by a
// command that opens storage. An entry shows who made the change, when, and from where. Each reveal
// has an entry, too. Posted messages and batches have none, because each of them has a row of its
// own.
//
// An entry is a row of the partition "audit". The keys of the rows sort newer rows first. Record
// inserts the row after the change and before the answer. Record also writes the entry to the
// process's log, so an entry that storage refuses is not lost. An entry does not have the message's
// body. In place of the function key, an entry has the beginning of the key's hash (Fingerprint).
//
// On paths that need sign-in the platform names the person. On the others the operator's page sends
// a proof, which Weir has signed for the person who opened the page (Proofs).
//
// An erasure removes the content of a message from its entries (Redact). An index leads from the
// message's id and key to these entries (index.go).
package audit
