// Package view is the function for everything that an operator reads: lanes, messages, errors, pauses,
// history, the page. It is one function, so that its key alone allows to read everything and to change
// nothing.
//
// The host tries functions in the order of their names, and the route of this one matches every path. So
// its folder's name must come after those of all functions with a GET route.
package view
