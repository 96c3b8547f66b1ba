// Package notify tells others what has happened: receivers that the settings name, and the
// callback that a message brought with it. It empties the outboxes of the lanes.
//
// # The way of an event
//
// What is to be told of a message is written in the transaction that makes it final (package
// lane, outbox.go). The process that committed it is nudged and sends it at once; every
// sweep sees the note !mail of a lane whose outbox is not empty, and has it looked at. One
// process at a time empties an outbox, under a lease of its own. It is not the lane's lease:
// a delivery never waits for a receiver.
//
//	row due ──▶ asked for ──▶ 2xx ─────────────────▶ row gone
//	   ▲                       410 Gone, 3 days over ─▶ row gone, and logged
//	   └── row put off ◀────── anything else
//
// A row is taken away only after the receiver has answered. So each event is told at least
// once; one that is told again has the same webhook-id and the same body.
//
// # Invariants
//
//   - Every message that ends with a callback is called back at least once after that, or is
//     tried for three days.
//   - While an outbox holds a row its note is there: the row and the note are written
//     together, and the note is removed only under the ETag it had before the outbox was
//     found empty.
//   - No message of a lane waits for a receiver, and no receiver for another one: to each host
//     a lane sends two events at a time, to all of them eight, and what a host that does not
//     keep up has due beyond that is put off.
//   - While a host is away one event at a time tries it, and the others due count as tried.
//
// # The lane's own state
//
// Each sweep looks at the control rows it has read: is the lane paused for longer than a
// receiver wants to know, is the oldest of what waits older? What was told stands in the
// note !mailed, written in one transaction with the mail and under its ETag, so that each
// occurrence is told once, whatever number of processes sees it.
package notify
