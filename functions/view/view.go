// Package view is the function for everything that an operator reads, such as lanes, lists of messages, errors,
// pauses, history and the page. It is one function with one function key, so that an operator can have the right to
// read without the right to change.
//
// The host tries functions in the order of their names, and the route of this function matches every path. So
// the name of its folder must come after the names of all other functions with a GET route.
package view
