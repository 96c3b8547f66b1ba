// Package azure is the storage ports on Azure Storage (and Azurite), over the Azure SDK.
// Nothing else imports the SDK.
//
// The SDK resends by itself and then shows only the last answer. For a conditional
// write that is a trap: the first copy may have been carried out, and the second is told
// that its condition does not hold. So every client here is made with retries off, and
// only calls that may be repeated unseen (reads, and blob writes that replace the whole)
// ask for them, each by its context. net/http resends on its own only where not a byte
// was written or the method is a read; HTTP/2, which knows more cases, is off.
//
// Errors are told apart by status and storage's error code, never by text, with one
// exception: which operation of a transaction failed stands only in the error's message.
package azure
