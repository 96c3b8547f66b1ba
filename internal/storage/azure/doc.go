// Package azure implements the storage ports on Azure Storage (and Azurite) with the Azure SDK. No
// other package of this module imports the SDK.
//
// The SDK retries by itself and then returns only the last answer. That is wrong for a conditional
// write: storage may have carried out the first request, and refuses the repeat because its condition
// no longer holds. So all clients are created without retries. Some calls do no harm when they are
// repeated: reads, writes of whole blobs, marks, and the creation of a table, queue or container. Only
// these calls enable retries, by their context.
// net/http resends a request only if no byte was written or the method is a read; HTTP/2, which has
// more cases, is off.
//
// Errors are classified by status and storage's error code, never by text, with one exception: the
// index of a transaction's failed operation is only in the error's message.
package azure
