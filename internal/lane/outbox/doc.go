// Package outbox stores the events of a lane for receivers outside of Weir. Package notify sends
// these events.
//
// The outbox's rows are in the lane's partition. So package lane can add events to the transaction
// that makes a message final, and a crash cannot lose these events (see FinalEvent).
//
// A row is one event for one receiver. The row's key begins with the time at which the event is to
// be sent. So due events come first, and a postponed event gets a new row.
//
// The row !mail is the outbox's marker. It exists while the outbox can have events. The marker is
// one of the control rows, so a process that reads the control rows sees without a further query
// that an outbox is empty.
//
// A sender that finds no rows in the outbox removes the marker. A process that adds an event also
// writes the marker, and so changes the marker's ETag. The sender reads the ETag before it reads
// the outbox, and removes the marker only if the ETag is still the same. So the marker stays if an
// event was added meanwhile.
package outbox
