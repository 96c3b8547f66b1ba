// Package calendar computes closed times, in which no message is sent: each week at certain hours, or from one date to
// another. It does no I/O, except that New loads the time zone.
//
// All times are of one time zone. If a closed time begins or ends in the hour that the clocks skip in spring, it begins
// or ends when the clocks change. In autumn an hour occurs twice: a closed time that begins in it begins at the first
// occurrence, and a closed time that ends in it ends at the second. So the whole configured time is closed.
package calendar
