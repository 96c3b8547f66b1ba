package app

import (
	"time"

	"weir/internal/drain"
	"weir/internal/ticket"
	"weir/internal/weir"
)

// holderLingers is the shortest time for which a holder keeps the lease of an empty lane. So, once a ticket has become
// visible, its lane needs no further ticket for this time.
const holderLingers = 2 * time.Second

// laneWaker wakes the drainer of this process, and by a ticket the drainer of another process.
type laneWaker struct {
	drainer     *drain.Drainer
	tickets     *ticket.Sender
	ticketsOnly bool // this process drains only the lanes that its tickets name
}

// Call enqueues a ticket. It also wakes the drainer of this process, unless ticketsOnly is set. It returns at once.
func (w laneWaker) Call(lane int) {
	if !w.ticketsOnly {
		w.drainer.Wake(lane)
	}
	w.tickets.EnqueueAsync(lane)
}

// Wake wakes the drainer of this process if this process may deliver without a ticket. Otherwise it enqueues a ticket.
// Wake returns at once.
func (w laneWaker) Wake(lane int) {
	if w.ticketsOnly {
		w.tickets.EnqueueAsync(lane)
		return
	}
	w.drainer.Wake(lane)
}

// OfferAppended hands messages that this process has just appended over to its drainer, unless ticketsOnly is set. It
// enqueues no ticket, because the code that files the messages does so.
func (w laneWaker) OfferAppended(lane int, messages []weir.Message) {
	if !w.ticketsOnly {
		w.drainer.OfferAppended(lane, messages)
	}
}

// WakeOffered wakes the drainer of this process for the messages that OfferAppended handed over, unless ticketsOnly is
// set. It returns at once.
func (w laneWaker) WakeOffered(lane int) {
	if !w.ticketsOnly {
		w.drainer.WakeOffered(lane)
	}
}
