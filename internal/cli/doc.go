// Package cli has the commands of the handler: their flags, their output and their exit codes.
//
// The commands check, consume, drain, lanes, poll and verify work on storage through package app. The commands try, and
// check with files, need only weir.yaml. The command version needs nothing. The other commands call the HTTP API of a
// Weir through package remote (api_command.go). Without a command the handler serves a Functions host.
package cli
