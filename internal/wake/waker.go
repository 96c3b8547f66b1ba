// Package wake leads a process to a lane with work: this process by its drainer, another one by a
// ticket. It has two verbs for work that has come. A message that this process has appended is
// offered, with its body, and then rung; everything else is only rung.
package wake

import "weir/internal/weir"

// Ringer makes this process or another one look at a lane with work. Ring returns at once. It
// reports no failure, because the next sweep finds the work, too.
type Ringer interface{ Ring(lane int) }

// Drainer is the drainer of this process; see drain.Drainer.
type Drainer interface {
	Wake(lane int)
	OfferAppended(lane int, messages []weir.Message)
	WakeOffered(lane int)
}

// Tickets enqueues tickets for lanes. EnqueueAsync returns at once.
type Tickets interface{ EnqueueAsync(lane int) }

// Waker wakes the drainer of this process, and enqueues tickets. A ticket wakes the drainer of the
// process that receives the ticket. All fields are required.
type Waker struct {
	Drainer     Drainer
	Tickets     Tickets
	TicketsOnly bool // this process drains only the lanes that its tickets name
}

// Ring implements Ringer for a request, or another change of a lane: it enqueues a ticket, and
// wakes the drainer of this process, except if TicketsOnly is set.
func (w Waker) Ring(lane int) {
	if !w.TicketsOnly {
		w.Drainer.Wake(lane)
	}
	w.Tickets.EnqueueAsync(lane)
}

// Offer passes messages that this process has just appended to the drainer of this process, so that
// it need not read them. If TicketsOnly is set, Offer does nothing. For each message the caller of
// the appender calls Filed().Ring afterwards.
func (w Waker) Offer(lane int, messages []weir.Message) {
	if !w.TicketsOnly {
		w.Drainer.OfferAppended(lane, messages)
	}
}

// Filed returns the Ringer for messages that were offered. If several messages were offered
// together, only the first Ring wakes the drainer of this process.
func (w Waker) Filed() Ringer { return filedRinger{w} }

type filedRinger struct{ Waker }

func (r filedRinger) Ring(lane int) {
	if !r.TicketsOnly {
		r.Drainer.WakeOffered(lane)
	}
	r.Tickets.EnqueueAsync(lane)
}

// Wake makes the drainer of this process look at a lane. If TicketsOnly is set, Wake enqueues a
// ticket instead. A sweep wakes lanes: it looks at them again in a minute, so it needs no ticket.
func (w Waker) Wake(lane int) {
	if w.TicketsOnly {
		w.Tickets.EnqueueAsync(lane)
		return
	}
	w.Drainer.Wake(lane)
}
