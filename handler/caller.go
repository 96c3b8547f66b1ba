package main

import (
	"time"

	"weir/internal/drain"
	"weir/internal/ticket"
	"weir/internal/weir"
)

// holderSees is how long a holder certainly goes on looking at its lane after it was rung for:
// it lingers for two seconds. A ring within that time leads nowhere else.
const holderSees = 2 * time.Second

// caller has lanes looked at: here, and through the queue wherever they are held. Where
// deliveries are left to the instances of process, nothing but a ticket has a lane looked at.
type caller struct {
	drainer *drain.Drainer
	bell    *ticket.Bell
	remote  bool // this process drains only what a ticket leads it to
}

func (p *Program) newCaller(drainer *drain.Drainer, bell *ticket.Bell) caller {
	return caller{drainer, bell, p.settings.leavesDelivery()}
}

// Call has a lane looked at everywhere. It returns at once.
func (c caller) Call(lane int) {
	if !c.remote {
		c.drainer.Wake(lane)
	}
	c.bell.RingSoon(lane)
}

// Wake has a lane looked at in one place, here where possible. It returns at once.
func (c caller) Wake(lane int) {
	if c.remote {
		c.bell.RingSoon(lane)
		return
	}
	c.drainer.Wake(lane)
}

// Offer hands over what was filed here just now to a drain here. The receiver rings for itself.
func (c caller) Offer(lane int, messages []weir.Message) {
	if !c.remote {
		c.drainer.Offer(lane, messages)
	}
}

// WakeOffered wakes a drain here for what was offered. It returns at once.
func (c caller) WakeOffered(lane int) {
	if !c.remote {
		c.drainer.WakeOffered(lane)
	}
}
