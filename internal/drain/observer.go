package drain

import (
	"time"

	"weir/internal/weir"
)

// Observer gets the events of this process's drains, for metrics. Its methods are called concurrently, and must return
// at once, because deliveries wait for them.
type Observer interface {
	// Attempted is called after each attempt, even if the attempt ended before a request was sent. outcome is the
	// outcome that counts for the message. It can differ from r.Outcome, for example if the CMS refuses all messages.
	Attempted(lane int, m *weir.Message, r weir.Result, outcome weir.Outcome)
	// Finished is called when the holder has decided that a message is final. If the commit of the decision fails,
	// another holder decides anew.
	Finished(lane int, f Final)
	// Lease is called for each event of a lane's lease.
	Lease(lane int, event LeaseEvent)
}

// Final describes a message that the holder decided to be final.
type Final struct {
	Stage      weir.Stage
	Contract   string    // "" for a superseded message that the holder has not read
	AcceptedAt time.Time // zero for a superseded message that the holder has not read
	Since      time.Time // the latest of acceptance, due time and replay request; zero if AcceptedAt is zero
	At         time.Time
}

// LeaseEvent is an event of a lane's lease.
type LeaseEvent string

// The events of leases.
const (
	LeaseTaken    LeaseEvent = "taken"
	LeaseBusy     LeaseEvent = "busy"     // another process has the lease
	LeaseReleased LeaseEvent = "released" // this process is about to release the lease
	LeaseLost     LeaseEvent = "lost"     // this process can no longer trust the lease, or another holder has the lane
)

// noObserver is the Observer if none is set.
type noObserver struct{}

func (noObserver) Attempted(int, *weir.Message, weir.Result, weir.Outcome) {}
func (noObserver) Finished(int, Final)                                     {}
func (noObserver) Lease(int, LeaseEvent)                                   {}
