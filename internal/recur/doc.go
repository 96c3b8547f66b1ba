// Package recur appends recurring messages to the lanes. A schedule is a cron expression with a
// message. Normally each occurrence of a schedule becomes one message.
//
// # State
//
// A schedule is one row of the partition "schedules"; the row key is the schedule's name. The row
// has the user's definition, the message text (compressed; a large text is in a blob), and the
// state. The state has the next occurrence's due time and number, and counters of earlier
// occurrences. A write of the row fails if another process has changed the row after it was read.
//
// # An occurrence
//
//	read the row ──not due──▶ set a timer
//	   │ due
//	   ▼
//	missed (more than Grace late)? ──▶ count it, or append it late: see Missed
//	   │ no
//	   ▼
//	overlap is "skip", and the schedule's last message is not final? ──▶ count it, then write the row
//	   │ no
//	   ▼
//	append the message under the idempotency key <name>@<due>, then write the row
//
// In this diagram "write the row" means: write the next occurrence into the row.
//
// A process handles an occurrence one second before its due time (fileAhead). The message has the
// occurrence's due time, so Weir delivers the message at that time. With overlap "skip" a process
// handles an occurrence only at its due time, because until then the schedule's last message can
// still become final.
//
// # Invariants
//
//   - An occurrence becomes at most one message, even if several processes append the message at
//     the same time. All of them append the same body under the same idempotency key, because body
//     and key depend only on the row.
//   - A process first handles an occurrence: it appends or skips the occurrence, or counts it as
//     missed or refused. Only then does the process write the next occurrence into the row. So
//     occurrences are handled in the order of their due times.
//   - The row has an occurrence's number before the occurrence is due. So neither a crash nor
//     another process can give the occurrence another number.
//
// # Failure
//
// If a process crashes between the append and the write of the row, the row still names the
// occurrence. The next process appends the message again, and the append finds the message in its
// lane. Then the process writes the next occurrence into the row.
//
// When a process stores a new definition, another process may already have appended occurrences
// with the old definition, because the other process's clock can be up to clockSkew (4 s) ahead.
// These occurrences must not be appended again with the new definition. So before the storing
// process writes the new definition, it handles, with the old definition, all occurrences that the
// other process may have appended.
//
// If the new definition is paused, no occurrence is appended with it. So before the storing process
// writes a paused definition, it handles only the occurrences whose time has come by its own clock.
//
// # Local time
//
// The cron fields name local times. When clocks are set forward, some local times do not exist;
// occurrences at such times are left out. When clocks are set back, some local times occur twice.
// An occurrence at such a time is due only at the first of the two instants. But if the hour field
// matches every hour ("*"), an occurrence is due at both instants. @every counts elapsed time and
// ignores local time.
package recur
