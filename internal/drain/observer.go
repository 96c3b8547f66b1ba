package drain

import (
	"time"

	"weir/internal/weir"
)

// Observer gets the events of this process's drains, for metrics. Its methods are called
// concurrently, from the middle of the work, and must return at once.
type Observer interface {
	// Attempted is called after an attempt, also after one that Weir decided not to make. outcome is the outcome for
	// the message, and may differ from r.Outcome.
	Attempted(lane int, m *weir.Message, r weir.Result, outcome weir.Outcome)
	// Finished is called when the holder has decided that a message is final. The commit of that decision can still
	// fail. In that case another holder decides anew.
	Finished(lane int, f Final)
	// Lease is called for each event of a lane's lease.
	Lease(lane int, event LeaseEvent)
}

// Final describes a message that the holder decided to be final.
type Final struct {
	Stage      weir.Stage
	Contract   string    // "" if a superseded message was not read
	AcceptedAt time.Time // zero if a superseded message was not read
	Since      time.Time // the latest of acceptance, due time and replay request; zero if AcceptedAt is zero
	At         time.Time
}

// LeaseEvent is an event of a lane's lease.
type LeaseEvent string

// The events of leases.
const (
	LeaseTaken    LeaseEvent = "taken"
	LeaseBusy     LeaseEvent = "busy"     // another process has it
	LeaseReleased LeaseEvent = "released" // this process is about to release it
	LeaseLost     LeaseEvent = "lost"     // trust in it has ended, or another holder has the lane
)

// noObserver is the Observer if none is set.
type noObserver struct{}

func (noObserver) Attempted(int, *weir.Message, weir.Result, weir.Outcome) {}
func (noObserver) Finished(int, Final)                                     {}
func (noObserver) Lease(int, LeaseEvent)                                   {}
