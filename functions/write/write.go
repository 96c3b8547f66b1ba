// Package write is the function for everything that an operator changes: replays, edits, cancellations,
// pauses. It is one function, so that one key separates the right to change from the right to read.
//
// The host tries functions in the order of their names, and the route of this one matches every path. So
// its folder's name must come after those of all functions with a POST or DELETE route.
package write
