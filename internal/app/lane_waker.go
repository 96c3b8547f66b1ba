package app

import (
	"time"

	"weir/internal/drain"
	"weir/internal/ticket"
	"weir/internal/weir"
)

// holderLingers is how long a holder stays with an empty lane after a ticket. Another ticket within that
// time is not needed.
const holderLingers = 2 * time.Second

// laneWaker wakes drainers: that of this process, and through the queue that of the process that holds the
// lane.
type laneWaker struct {
	drainer     *drain.Drainer
	tickets     *ticket.Sender
	ticketsOnly bool // this process drains only the lanes that its tickets name
}

// Call wakes the drainer of this process, and enqueues a ticket. It returns at once.
func (w laneWaker) Call(lane int) {
	if !w.ticketsOnly {
		w.drainer.Wake(lane)
	}
	w.tickets.EnqueueAsync(lane)
}

// Wake wakes one drainer: that of this process if it may deliver, otherwise another one by a ticket. It
// returns at once.
func (w laneWaker) Wake(lane int) {
	if w.ticketsOnly {
		w.tickets.EnqueueAsync(lane)
		return
	}
	w.drainer.Wake(lane)
}

// OfferAppended hands messages that this process has just appended over to its drainer. It enqueues no ticket: the
// receiver does.
func (w laneWaker) OfferAppended(lane int, messages []weir.Message) {
	if !w.ticketsOnly {
		w.drainer.OfferAppended(lane, messages)
	}
}

// WakeOffered wakes the drainer of this process for offered messages. It returns at once.
func (w laneWaker) WakeOffered(lane int) {
	if !w.ticketsOnly {
		w.drainer.WakeOffered(lane)
	}
}
