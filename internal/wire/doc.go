// Package wire has the JSON forms of the HTTP API: one Message, one Lane, one Job and one Pause. The functions
// answer with them, the client (package remote) decodes them, and the operator's page (package dashboard)
// shows them.
//
// An absent time is the zero time.
package wire
