// Package notify sends webhooks: events to the receivers that the settings name, and callbacks to
// the addresses that messages name. It sends the events in the outboxes of the lanes, and removes
// them.
//
// # The way of an event
//
// The transaction that makes a message final also writes the message's events into the lane's
// outbox. Package outbox describes the rows. The holder that committed the transaction wakes the
// worker of the outbox in its own process, and the worker sends the events at once.
//
// Each lane whose outbox is not empty has the marker row !mail. Every sweep sees this marker, and
// wakes a worker if the outbox may have events that the sweep's process has not read. One process
// at a time sends the events of an outbox, under a lease of the outbox. This lease is not the
// lane's lease, so delivery to the CMS never waits for a receiver.
//
//	row due ──▶ request sent ──▶ 2xx ─────────────────▶ row removed
//	   ▲                          410 Gone, 3 days over ─▶ row removed, and logged
//	   └── row rescheduled ◀───── anything else
//
// A row is removed after the receiver has answered 2xx or 410. So each event is sent at least once,
// with these exceptions: a row is also removed if its first try was three days ago, if the event is
// three days old and its receiver has been too slow or away to get it, if its receiver is no longer
// in the settings, or if its message no longer exists.
//
// If an event is sent again, it has the same webhook-id. After a failed request the body is stored,
// so later requests have the same body.
//
// # Invariants
//
//   - If a message with a callback becomes final, Weir sends the callback at least once, or tries
//     for three days.
//   - While an outbox has a row, its marker exists. Weir writes the row and the marker together.
//     Weir removes the marker only after a read has found no further rows. If another process has
//     written the marker since that read began, the marker stays.
//   - A slow host does not stop the events to other hosts. A lane sends at most two events at a
//     time to each host, and at most eight to all hosts together. The host that has waited longest
//     for a request comes first.
//   - A host that did not answer gets no request during its backoff. After the backoff, each lane
//     sends the host one event at a time until the host answers.
//   - Weir writes the row of an event again only after a failed request of this event. So a backlog
//     costs one removed row for each event, and two written rows for each failed request, however
//     long it is and however slow its receiver is. Events for which a line has no room stay in
//     their rows: the line keeps the position up to which it was read.
//
// # Events of a lane
//
// These events are about a lane's state: the lane is paused, or its oldest message has waited for
// long. Each sweep compares the control rows that it has read with the thresholds in the settings
// of the receivers. The marker row !mailed names the receivers for which an event is already in the
// outbox, or was sent. One transaction writes the events and the row !mailed, and fails if the
// row's ETag has changed. So one pause or backlog makes one event for each receiver, even if
// several processes see the pause or backlog.
package notify
