// Package outbox keeps the outbox of a lane: the events for receivers outside. Package notify sends them.
//
// The rows are in the partition of the lane, so the transaction that makes a message final also writes the
// events about it. Package lane adds the rows of FinalEvent to that transaction: a crash cannot separate an end
// from its events.
//
// A row is one event for one receiver. Its key begins with the time at which to send it, so due events come
// first, and a postponed event moves to a new row.
//
// The row !mail marks an outbox as possibly not empty. Each reader of the control rows reads it anyway, so it
// costs no request to know that an outbox is empty. A sender that finds the outbox empty removes the marker
// under the ETag that it had before that read: an event that was added meanwhile has written the marker again.
package outbox
