// Package notify sends webhooks: events to the receivers that the settings name, and callbacks to
// the address that a message brought with it. It empties the outboxes of the lanes.
//
// # The way of an event
//
// The transaction that makes a message final also writes its events into the lane's outbox (package
// outbox keeps its rows). The process that committed it is woken and sends them at once. The marker row
// !mail stands in each lane whose outbox is not empty; every sweep sees it and wakes a worker. One
// process at a time empties an outbox, under a lease of its own. It is not the lane's lease: a
// delivery never waits for a receiver.
//
//	row due ──▶ request sent ──▶ 2xx ─────────────────▶ row removed
//	   ▲                          410 Gone, 3 days over ─▶ row removed, and logged
//	   └── row rescheduled ◀───── anything else
//
// A row is removed only after the receiver has answered. So each event is sent at least once; one
// that is sent again has the same webhook-id and the same body.
//
// # Invariants
//
//   - Every message that ends with a callback is called back at least once after that, or is
//     tried for three days.
//   - While an outbox holds a row its marker exists: the row and the marker are written
//     together, and the marker is removed only under the ETag it had before the outbox was
//     found empty.
//   - No message of a lane waits for a receiver, and no receiver for another one: a lane sends
//     two events at a time to each host, and eight to all hosts. Due events beyond the queue of
//     a slow host are rescheduled.
//   - While a host does not answer, one event at a time tries it, and the other due events
//     count as tried.
//
// # Events of a lane
//
// Each sweep compares the control rows that it has read with the thresholds of the receivers: for
// how long is the lane paused, and how old is its oldest waiting message? The marker row !mailed
// records the receivers that have their event. It is written under its ETag, in one transaction
// with the events, so that each occurrence is sent once, however many processes see it.
package notify
