// Package calendar computes closed times, in which no message is sent. A closed time is at certain
// hours each week, or once from one date to another. The package does no I/O, except that New loads
// the time zone.
//
// All times are in the time zone of the calendar. If a closed time begins or ends in an hour that
// the clocks skip in spring, it begins or ends when the clocks change. In autumn one hour occurs
// twice. A closed time that begins in that hour begins at the hour's first occurrence. A closed
// time that ends in that hour ends at the second occurrence.
package calendar
