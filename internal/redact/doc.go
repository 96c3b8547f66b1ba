// Package redact hides the values of messages that their contracts redact. It hides them from callers without
// the key of the function write. Storage and the requests to the CMS still have the values. The package hides
// them in two ways:
//
//   - Bodies shows bodies without the values. It applies the contracts of the settings at each read, so a change of
//     the setting is at once valid for all stored messages. If it cannot find the values in a body, it does not show
//     the body.
//   - Sender and Mask remove the values from texts that may repeat them, such as an answer of the CMS, before the
//     texts are stored, logged or exported. So lists, searches, notifications and traces need no rule of their own.
//
// Mask does not find a part of a value if this part has only a few characters. It does not find a value in a form that
// it does not know, either.
package redact
