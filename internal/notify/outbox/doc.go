// Package outbox has the rows of a lane's outbox: the events for receivers outside of Weir. Package notify
// sends them.
//
// The rows are in the partition of the lane, so the transaction that makes a message final also writes the
// events about it. Package lane adds the rows of FinalEvent to that transaction: a crash cannot separate an end
// from its events.
//
// A row is one event for one receiver. Its key begins with the time at which the event is to be sent. So due
// events come first, and a postponed event moves to a new row.
//
// The row !mail marks an outbox that may have events. It is one of the control rows, which processes read anyway, so
// they find an empty outbox without another request. A sender that has found the outbox empty removes the marker, but
// only if the marker still has the ETag from before that read. If another process has added an event since, it has also
// written the marker again, so the marker stays.
package outbox
