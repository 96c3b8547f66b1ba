// Package cli has the commands of Weir's program, with their flags, output and exit codes. Without
// a command the program serves a Functions host.
//
//   - "weir consume", "drain", "lanes", "poll" and "verify" work on storage through package app.
//   - "weir check" works on storage through package app. With files as arguments it uses no
//     storage.
//   - "weir try" uses package app without storage.
//   - "weir version" needs nothing.
//   - The other commands call the HTTP API of a running Weir through package remote; see
//     api_command.go.
package cli
