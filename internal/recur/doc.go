// Package recur files recurring messages. A schedule is a cron expression with a message; each of
// its occurrences becomes one ordinary message.
//
// # State
//
// A schedule is one row of the partition "schedules", under its name. The row holds the definition
// as its user put it, the message's text (compressed; a large one in a blob), and the state: when
// the next occurrence is due, its number, and counters of the earlier occurrences. Every change of
// a row is conditional on the row as it was read.
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
// An occurrence counts as due one second early, except with overlap: skip, which has to know
// whether the last message is final. Its message is filed with the occurrence's due time and
// delivered then.
//
// # Invariants
//
//   - At most one message per occurrence, however many processes fire it at once: they
//     append the same body under the same idempotency key, because body and key depend only on
//     the row that named the occurrence.
//   - An occurrence is processed (filed, skipped, missed or refused) before the row moves on,
//     and the row moves in the order of the due times.
//   - The number of an occurrence is in the row before it is due, so that a crash or
//     another process cannot give it another.
//
// # Failure
//
// After a crash between the append and the move the row still names the occurrence: the next
// process appends again, finds the message there, and moves on. A new definition never takes over
// an occurrence that the old one may have filed already. Another process's
// clock may be ahead by up to clockSkew. So occurrences that are due in less time than that are filed
// by the old definition first, as messages with their due times.
//
// # Local time
//
// The cron fields name local times. If clocks are set forward, the local times that do not exist
// are left out. If they are set back, a local time that occurs twice counts once, the first time.
// But a schedule for every hour ("*" as its hour) counts intervals, and runs in both hours. @every
// counts elapsed time and ignores local time.
package recur
