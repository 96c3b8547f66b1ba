package drain

import (
	"time"

	"weir/internal/weir"
)

// Observer is told what happens in this process's drains, for metrics and the like. Its
// methods are called concurrently, from the middle of the work, and must return at once.
type Observer interface {
	// Attempted tells of an attempt that is over. outcome is what it means to the message,
	// which is not always what the result alone says.
	Attempted(lane int, m *weir.Message, r weir.Result, outcome weir.Outcome)
	// Finished tells of a message that was decided to be final. The commit of it can still
	// fail; another holder decides anew then.
	Finished(lane int, f Final)
	// Lease tells what became of the lane's lease.
	Lease(lane int, event LeaseEvent)
}

// Final is a message that became final.
type Final struct {
	Stage      weir.Stage
	Contract   string    // "" where a superseded message was not read
	AcceptedAt time.Time // zero where a superseded message was not read
	Since      time.Time // from when on it could have been delivered: accepted, due, or asked to be replayed
	At         time.Time
}

// LeaseEvent is what became of a lane's lease.
type LeaseEvent string

// The events of leases.
const (
	LeaseTaken    LeaseEvent = "taken"
	LeaseBusy     LeaseEvent = "busy"     // another process has it
	LeaseReleased LeaseEvent = "released" // in order
	LeaseLost     LeaseEvent = "lost"     // it ran out, or the lane was fenced
)

// noObserver is the Observer where none is set.
type noObserver struct{}

func (noObserver) Attempted(int, *weir.Message, weir.Result, weir.Outcome) {}
func (noObserver) Finished(int, Final)                                     {}
func (noObserver) Lease(int, LeaseEvent)                                   {}
