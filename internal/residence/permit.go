package residence

import (
	"sync/atomic"
	"time"
)

// takesNoneFor is the time after which a call of StopTaking has no effect any more. The platform
// needs less time to shut a host down. If the host is not being shut down, and only its queue and
// timer listeners have failed, the process delivers messages again after this time.
const takesNoneFor = 10 * time.Minute

// Permit knows whether this process may keep its lanes, and whether it may take further ones. A nil
// Permit is that of a process without a Functions host: the process may always do both. A Permit is
// safe for concurrent use.
type Permit struct {
	now            func() time.Time
	isAttended     atomic.Bool  // an invocation stays with the lanes of this process
	takesNoneUntil atomic.Int64 // nanoseconds since 1970; 0 = this process takes lanes
}

// NewPermit returns the Permit of a process without an invocation.
func NewPermit(now func() time.Time) *Permit { return &Permit{now: now} }

// Attend records that an invocation stays with the lanes of this process. Until Yield is called,
// this process hands no lane over to a process that claims the lane.
func (p *Permit) Attend() { p.setAttended(true) }

// Yield records that no invocation stays with the lanes of this process, or that the last such
// invocation ends soon. From then on this process hands a lane over to a process that claims the
// lane.
func (p *Permit) Yield() { p.setAttended(false) }

func (p *Permit) setAttended(isAttended bool) {
	if p != nil {
		p.isAttended.Store(isAttended)
	}
}

// StopTaking makes this process take no further lane until MarkTriggered is called, or until ten
// minutes have passed. The process keeps the lanes that it holds. StopTaking is called when no
// ticket has led to another invocation, because the platform may then be shutting the host down.
func (p *Permit) StopTaking() {
	if p != nil {
		p.takesNoneUntil.Store(p.now().Add(takesNoneFor).UnixNano())
	}
}

// MarkTriggered ends the effect of StopTaking. It is called before each invocation of a queue or
// timer function, because a host that the platform is shutting down makes no such invocation.
func (p *Permit) MarkTriggered() {
	if p != nil {
		p.takesNoneUntil.Store(0)
	}
}

// IsHosted reports whether a Functions host may end this process while the process has no
// invocation.
func (p *Permit) IsHosted() bool { return p != nil }

// MayKeepLanes reports whether this process may keep its lanes even if another process claims them.
func (p *Permit) MayKeepLanes() bool { return p == nil || p.isAttended.Load() }

// MayTakeLanes reports whether this process may take further lanes.
func (p *Permit) MayTakeLanes() bool {
	if p == nil {
		return true
	}
	until := p.takesNoneUntil.Load()
	return until == 0 || p.now().UnixNano() >= until
}
