// Package calendar computes closed times, in which no message is sent: each week at certain hours,
// or from one date to another. It does no I/O.
//
// All times are of one time zone. If a closed time begins or ends in the hour that summer time
// skips, it does so when the clocks change. If it begins in the hour that occurs twice, it begins
// the first time; if it ends there, it ends the second time. So the whole configured time is
// closed.
package calendar
