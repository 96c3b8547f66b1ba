// Package notify sends webhooks: events to the receivers that the settings name, and callbacks to the addresses
// that messages bring with them. It empties the outboxes of the lanes.
//
// # The way of an event
//
// The transaction that makes a message final also writes its events into the lane's outbox (package outbox has
// its rows). The process that committed the transaction wakes its worker, which sends the events at once. Each
// lane whose outbox is not empty has the marker row !mail. Every sweep sees this row and wakes a worker. One
// process at a time empties an outbox, under a lease of the outbox. This lease is not the lane's lease, so a
// delivery never waits for a receiver.
//
//	row due ──▶ request sent ──▶ 2xx ─────────────────▶ row removed
//	   ▲                          410 Gone, 3 days over ─▶ row removed, and logged
//	   └── row rescheduled ◀───── anything else
//
// A row is removed after the receiver has answered 2xx or 410, so each event is sent at least once. Without such an
// answer, a row is removed after three days, or if its receiver or its message no longer exists. If an event is sent
// again, it has the same webhook-id. After a failed request the body is stored, so later requests have the same body.
//
// # Invariants
//
//   - If a message with a callback ends, Weir sends the event of its end at least once, or tries for three days.
//   - While an outbox has a row, its marker exists. Weir writes the row and the marker together. It removes the marker
//     only after a read has found the outbox empty, and only if the marker's ETag has not changed since before that
//     read.
//   - No message of a lane waits for a receiver, and no receiver waits for another one: a lane sends at most two
//     events at a time to each host, and at most eight to all hosts together. Due events that do not fit into the
//     queue of a slow host are rescheduled.
//   - While a host does not answer, one event at a time is sent to it. For the other due events of the host, a
//     failed try is recorded without a request.
//
// # Events of a lane
//
// Each sweep compares the control rows that it has read with the thresholds of the receivers: the time for which a lane
// is paused, and the age of its oldest waiting message. The marker row !mailed names the receivers that already got
// their event. It is written under its ETag, in one transaction with the events. So one occurrence makes one event for
// each receiver, even if several processes see the occurrence.
package notify
