// Package view is the function for everything that an operator reads: lanes, lists of messages,
// errors, pauses, history and the operator's page. Changes have a function of their own
// (functions/write) with another function key, so that an operator can have the right to read
// without the right to change.
//
// The host tries functions in the order of their folders' names, and takes the first function that
// matches. The route of functions/view is a catch-all ({*path}). So the name of this folder must
// come after the names of all other functions with a GET route.
package view
