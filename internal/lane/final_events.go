package lane

import (
	"time"

	"weir/internal/lane/outbox"
	"weir/internal/weir"
)

// The transaction that makes a message final also writes the rows of the message's events. So a
// crash cannot lose an event, and no event tells of a final stage that was not stored. Package
// outbox has the format of the rows.

// Notifier sends the events in the outboxes.
type Notifier interface {
	// DeadReceivers returns the names of the receivers that want events about a contract's dead
	// messages.
	DeadReceivers(contract string) []string
	// WakeOutbox makes the Notifier look for new events in a lane's outbox. It returns at once.
	WakeOutbox(lane int)
}

// NotifyFinal adds one event for each receiver: the message has become final.
func (c *Change) NotifyFinal(e *Entry, stage weir.Stage, at time.Time, receivers []string) {
	for _, to := range receivers {
		c.addEvent(outbox.FinalEvent(e.Seq(), stage, at, to, ""))
	}
}

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
