// Package wire has the JSON forms of the HTTP API: one Message, one Lane, one Job, one Pause and one Schedule. The
// functions answer with them, the client (package remote) sends and decodes them, and the operator's page (package
// dashboard) shows them.
//
// An absent time is the zero time, except if the JSON is null then.
package wire
