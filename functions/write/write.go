// Package write is the function of everything an operator does: replay, edit, pause,
// resume. One function, so that its key alone stands between looking and doing.
//
// The host tries functions in the order of their names, and this one's route takes every
// path: its folder's name must come after those of all functions with a POST or DELETE
// route.
package write
