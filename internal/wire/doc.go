// Package wire has the JSON forms of the HTTP API, such as Message, Lane, Job, Pause and Schedule. The
// functions answer with them, the client (package remote) sends and decodes them, and the operator's page
// (package dashboard) shows them.
//
// A time that is not set is the zero time, and its field is left out of the JSON. Only ScheduleState.NextAt is nil
// instead, which is null in JSON.
package wire
