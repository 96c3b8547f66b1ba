// Package azure implements the storage ports on Azure Storage (and Azurite) with the Azure SDK. No
// other package of this module imports the SDK.
//
// By default, the SDK repeats failed requests and returns only the last answer. For a conditional
// write, the last answer can mislead. If storage did the first request, but the answer was lost,
// storage refuses the repeat, because the condition no longer holds. So all clients are created
// without retries.
//
// Only these calls enable retries, because their repeats do no harm: reads, writes of whole blobs
// and files, marks, and the creation of a table, queue or container.
//
// The package net/http also resends requests: over HTTP/1.1, only if no byte was written or if the
// method is a read. HTTP/2 has more cases, so the clients do not use HTTP/2.
//
// Errors are classified by the HTTP status and storage's error code. Only the index of a
// transaction's failed operation is read from the error's text, because storage returns this index
// nowhere else.
package azure
