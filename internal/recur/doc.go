// Package recur files recurring messages. A schedule is a cron expression with a message. As a rule, each of its
// occurrences becomes one ordinary message.
//
// # State
//
// A schedule is one row of the partition "schedules", under its name. The row has the definition that the user put, the
// message's text (compressed; a large one in a blob), and the state: when the next occurrence is due, its number, and
// counters of the earlier occurrences. Every change of a row is conditional on the row as it was read.
//
// # An occurrence
//
//	read the row ──not due──▶ set a timer
//	   │ due
//	   ▼
//	missed (more than Grace late)? ──▶ treat it by the schedule's "missed"
//	   │ no
//	   ▼
//	overlap: skip, and the message of the last run is not final ──▶ count it as skipped, move on
//	   │ no
//	   ▼
//	append the message under the idempotency key <name>@<due>, then move the row on
//
// An occurrence is processed one second before its due time (fileAhead). Its message is filed with the occurrence's due
// time, and delivered at that time. With "overlap: skip" an occurrence is processed only at its due time, because it is
// not known earlier whether the message of the last run is final.
//
// # Invariants
//
//   - An occurrence becomes at most one message, even if several processes file it at the same time. They append the
//     same body under the same idempotency key, because body and key depend only on the row that named the occurrence.
//   - An occurrence is processed (filed, skipped, missed or refused) before the row moves on,
//     and the row moves in the order of the due times.
//   - The number of an occurrence is in the row before the occurrence is due, so that neither a crash nor another
//     process can give it another number.
//
// # Failure
//
// After a crash between the append and the move the row still names the occurrence. The next process appends the
// message again; the append finds the message in its lane. Then the process moves the row on. A new definition never
// files an occurrence that the old definition may have filed already. The clock of another process may be ahead by up
// to clockSkew. So occurrences that are due within clockSkew are first filed with the old definition, as messages with
// their due times. A definition that is paused files no occurrences. So if the new definition is paused, only the
// occurrences that are already due for this process are filed with the old one.
//
// # Local time
//
// The cron fields name local times. If clocks are set forward, the local times that do not exist are left out. If
// clocks are set back, a local time that occurs twice is due once, at its first occurrence. But if the hour field of a
// schedule matches every hour ("*"), such a local time is due both times. @every counts elapsed time and ignores local
// time.
package recur
