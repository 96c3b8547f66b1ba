// Package wire has the JSON forms of the HTTP API, such as Message, Lane, Job, Pause and Schedule. The
// functions answer with them, the client (package remote) sends and decodes them, and the operator's page
// (package dashboard) shows them.
//
// A missing time is the zero time, except in fields whose JSON is then null.
package wire
