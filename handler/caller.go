package main

import (
	"time"

	"weir/internal/drain"
	"weir/internal/ticket"
	"weir/internal/weir"
)

// holderSees is how long a holder looks at its lane after a ring: it lingers for two seconds. So
// another ring within that time is not needed.
const holderSees = 2 * time.Second

// caller calls for looks at lanes: in this process, and through the queue in the one that holds
// the lane. If deliveries are left to the instances of process, only a ticket leads to a look.
type caller struct {
	drainer *drain.Drainer
	bell    *ticket.Sender
	remote  bool // this process drains only lanes that a ticket leads it to
}

func (p *Program) newCaller(drainer *drain.Drainer, bell *ticket.Sender) caller {
	return caller{drainer, bell, p.settings.leavesDelivery()}
}

// Call calls for a look at a lane in every process. It returns at once.
func (c caller) Call(lane int) {
	if !c.remote {
		c.drainer.Wake(lane)
	}
	c.bell.EnqueueAsync(lane)
}

// Wake calls for a look at a lane in one process, in this one if it may deliver. It returns at
// once.
func (c caller) Wake(lane int) {
	if c.remote {
		c.bell.EnqueueAsync(lane)
		return
	}
	c.drainer.Wake(lane)
}

// Offer hands messages that this process has just filed to its drain. The receiver rings by
// itself.
func (c caller) OfferAppended(lane int, messages []weir.Message) {
	if !c.remote {
		c.drainer.OfferAppended(lane, messages)
	}
}

// WakeOffered wakes a drain here for what was offered. It returns at once.
func (c caller) WakeOffered(lane int) {
	if !c.remote {
		c.drainer.WakeOffered(lane)
	}
}
