package lane

import (
	"time"

	"weir/internal/notify/outbox"
	"weir/internal/weir"
)

// Package outbox builds the rows of the events about messages that become final. The transaction that makes a message
// final writes these rows, so a crash cannot separate the two: no receiver misses an event, and no event is about an
// end that did not happen. Package outbox reads and removes the rows.

// Notifier is the sender of the events in the outboxes.
type Notifier interface {
	// DeadReceivers returns the names of the receivers of events about dead messages of a contract.
	DeadReceivers(contract string) []string
	// WakeOutbox starts the sending of new events in a lane's outbox. It returns at once.
	WakeOutbox(lane int)
}

// NotifyFinal adds, for each of the receivers, an event about a message that has become final.
func (c *Change) NotifyFinal(e *Entry, stage weir.Stage, at time.Time, receivers []string) {
	for _, to := range receivers {
		c.addEvent(outbox.FinalEvent(e.Seq(), stage, at, to, ""))
	}
}

// addCallback adds the event for the callback of a message that has become final, if the message has one.
func (c *Change) addCallback(seq int64, url string, stage weir.Stage, at time.Time) {
	if url != "" {
		c.addEvent(outbox.FinalEvent(seq, stage, at, outbox.CallbackTo, url))
	}
}

func (c *Change) addEvent(e outbox.Event) {
	event, marker := outbox.EventOps(e)
	if c.ops = append(c.ops, event); !c.hasEvents {
		c.ops = append(c.ops, marker)
	}
	c.hasEvents = true
}

// HasEvents reports whether the change puts an event into the outbox.
func (c *Change) HasEvents() bool { return c.hasEvents }
