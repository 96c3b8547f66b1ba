package drain

import (
	"time"

	"weir/internal/weir"
)

// Observer gets the events of this process's drains, for metrics. Its methods are called
// concurrently, from the middle of the work, and must return at once.
type Observer interface {
	// Attempted is called after an attempt. outcome is the outcome for the message, which may differ from that of the
	// result.
	Attempted(lane int, m *weir.Message, r weir.Result, outcome weir.Outcome)
	// Finished is called when a message was decided to be final. Its commit can still fail; another
	// holder decides anew then.
	Finished(lane int, f Final)
	// Lease is called for each event of a lane's lease.
	Lease(lane int, event LeaseEvent)
}

// Final is a message that became final.
type Final struct {
	Stage      weir.Stage
	Contract   string    // "" if a superseded message was not read
	AcceptedAt time.Time // zero if a superseded message was not read
	Since      time.Time // when it became deliverable: accepted, due, or asked to be replayed
	At         time.Time
}

// LeaseEvent is an event of a lane's lease.
type LeaseEvent string

// The events of leases.
const (
	LeaseTaken    LeaseEvent = "taken"
	LeaseBusy     LeaseEvent = "busy"     // another process has it
	LeaseReleased LeaseEvent = "released" // the holder has released it
	LeaseLost     LeaseEvent = "lost"     // it has ended, or another holder has the lane
)

// noObserver is the Observer if none is set.
type noObserver struct{}

func (noObserver) Attempted(int, *weir.Message, weir.Result, weir.Outcome) {}
func (noObserver) Finished(int, Final)                                     {}
func (noObserver) Lease(int, LeaseEvent)                                   {}
