// Package view is the function of everything an operator reads: lanes, messages, dead
// letters, errors, the page. One function, so that its key alone lets people look at
// everything and change nothing.
//
// The host tries functions in the order of their names, and this one's route takes every
// path: its folder's name must come after those of all functions with a GET route.
package view
