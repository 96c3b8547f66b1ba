// Package wire has the JSON types of the HTTP API, such as Message, Lane, Job, Pause and Schedule.
// The app's functions, the client (package remote) and the operator's page (package dashboard) use
// these types.
//
// The JSON leaves out a time that is not set. There is one exception: the JSON has null for a
// ScheduleState.NextAt that is not set.
package wire
