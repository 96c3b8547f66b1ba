// Package redact hides the values of messages that their contracts redact from callers without the key of the function
// write. Storage and the requests to the CMS keep the values. There are two ways:
//
//   - Bodies: bodies are shown without the values. It asks the contracts anew at each read, so a change of the
//     setting holds for all stored messages at once. A body in which the values cannot be found is not shown.
//   - Sender, Mask: texts that may repeat the values, such as an answer of the CMS, lose them before they are
//     stored, logged or exported. So lists, searches, notifications and traces need no rule of their own.
//
// A few characters of a value, or a value in a form that Mask does not know, are not found.
package redact
