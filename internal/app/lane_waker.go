package app

import (
	"time"

	"weir/internal/drain"
	"weir/internal/ticket"
	"weir/internal/weir"
)

// holderLingers is the shortest time for which a holder keeps the lease of an empty lane. A process that receives a
// ticket keeps the lane for at least this time, so the lane needs no other ticket meanwhile.
const holderLingers = 2 * time.Second

// laneWaker wakes the drainer of this process. It can also enqueue a ticket, which wakes the drainer of the process
// that receives the ticket.
type laneWaker struct {
	drainer     *drain.Drainer
	tickets     *ticket.Sender
	ticketsOnly bool // true = this process drains only the lanes that its tickets name
}

// Call enqueues a ticket. Unless ticketsOnly is set, Call also wakes the drainer of this process. Call returns at once.
func (w laneWaker) Call(lane int) {
	if !w.ticketsOnly {
		w.drainer.Wake(lane)
	}
	w.tickets.EnqueueAsync(lane)
}

// Wake wakes the drainer of this process. If ticketsOnly is set, Wake enqueues a ticket instead. Wake returns at once.
func (w laneWaker) Wake(lane int) {
	if w.ticketsOnly {
		w.tickets.EnqueueAsync(lane)
		return
	}
	w.drainer.Wake(lane)
}

// OfferAppended passes messages that this process has just appended to the drainer of this process. If ticketsOnly is
// set, OfferAppended does nothing. OfferAppended never enqueues a ticket, because each caller of the appender enqueues
// one.
func (w laneWaker) OfferAppended(lane int, messages []weir.Message) {
	if !w.ticketsOnly {
		w.drainer.OfferAppended(lane, messages)
	}
}

// WakeOffered wakes the drainer of this process for the messages that OfferAppended gave to it. If ticketsOnly is set,
// WakeOffered does nothing. WakeOffered returns at once.
func (w laneWaker) WakeOffered(lane int) {
	if !w.ticketsOnly {
		w.drainer.WakeOffered(lane)
	}
}
