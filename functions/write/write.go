// Package write is the function for changes by an operator, such as replays, edits, cancellations,
// discards and pauses. Reading has a function of its own (functions/view) with another function
// key, so that an operator can have the right to read without the right to change.
//
// The host tries functions in the order of their folders' names, and takes the first function that
// matches. The route of functions/write is a catch-all ({*path}). So the name of this folder must
// come after the names of all other functions with a POST or DELETE route.
package write
