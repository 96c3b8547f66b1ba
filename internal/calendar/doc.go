// Package calendar says when nothing is to be sent: each week at certain hours, or from one
// date to another. It does no I/O.
//
// All times are of one time zone. A closed time that begins or ends in the hour that summer
// time leaves out does so at the change of the clocks; one in the hour that comes twice begins
// the first time and ends the second: what was asked to be closed is closed.
package calendar
