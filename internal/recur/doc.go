// Package recur files recurring messages: a schedule says when and what, and each of its
// occurrences becomes one ordinary message.
//
// # State
//
// A schedule is one row of the partition "schedules", under its name: the definition as
// its user put it, the message's text (compressed; a large one in a blob), and the state:
// when the next occurrence is due, the number it will have, and what became of the others.
// Every change of a row is conditional on the row as it was read.
//
// # An occurrence
//
//	read the row ──not due──▶ set a timer
//	   │ due
//	   ▼
//	missed? (more than Grace late) ──▶ move on as the schedule's "missed" says
//	   │ no
//	   ▼
//	overlap: skip, and the last one's message is not final ──▶ count it as skipped, move on
//	   │ no
//	   ▼
//	append the message under the idempotency key <name>@<due>, then move the row on
//
// Due means: within a second, where nothing has to be known of the last one. The message is
// filed as one that is due at the moment, and goes out then.
//
// # Invariants
//
//   - At most one message per occurrence, however many processes fire it at once: they
//     append the same body under the same idempotency key, because body and key depend on
//     nothing but the row that named the occurrence.
//   - An occurrence is settled (filed, skipped, missed or refused) before the row moves on,
//     and the row moves in the order of the due times.
//   - The number an occurrence gets is in the row before it is due, so that a crash or
//     another process cannot give it another.
//
// # Failure
//
// A crash between the append and the move leaves the row where it was: whoever comes next
// appends again, finds the message there, and moves on. A new definition never takes over
// an occurrence that the old one may have filed already: what is due within the
// difference clocks may have is filed by the old one first, as a message due at that time.
//
// # Local time
//
// The cron fields name local times. Where clocks are set forward, the local times that do
// not exist are left out. Where they are set back, a local time that comes twice counts
// once, the first time; but a schedule for every hour ("*" as its hour) is one of
// intervals and runs in both. @every counts elapsed time and knows no local time.
package recur
