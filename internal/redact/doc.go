// Package redact hides redacted values from callers without the key of the function write. Stored
// bodies and the requests to the CMS still have the values. The package hides the values in two
// ways:
//
//   - Bodies hides the values in message bodies. It applies the present contracts at each read, so
//     a change of the settings is at once valid for all stored messages. If Bodies cannot find the
//     values in a body, it returns an error instead of the body.
//   - Sender and Mask remove the values from texts that may repeat them, such as an answer of the
//     CMS. They do this before the texts are stored, logged or exported. So lists, searches,
//     notifications and traces do not have to hide values.
//
// Mask has two limits. It cannot find a part of a value if the part has only a few characters. It
// also cannot find a value in a form that package conceal does not know.
package redact
