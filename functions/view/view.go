// Package view is the function for everything that an operator reads: lanes, messages, errors, pauses,
// history, the page. It is one function with one function key, so that an operator with that key can read
// everything and change nothing.
//
// The host tries functions in the order of their names, and the route of this function matches every path. So
// the name of its folder must come after the names of all other functions with a GET route.
package view
