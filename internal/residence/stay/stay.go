package stay

import (
	"context"
	"errors"
	"slices"
	"time"

	"weir/internal/drain"
	"weir/internal/panics"
)

// A Functions host may end a process that has no invocation in flight, and the host limits the time
// of each invocation. So invocations stay with the lanes of a process one after the other. This is
// the timetable of an invocation:
//
//	0 s   the invocation begins to stay with the lanes that this process drains or claims
//	10 s  the invocation enqueues a ticket if this process drains a lane; the ticket's invocation is to
//	      relieve the one that stays
//	25 s  as at 10 s
//	40 s  as at 10 s
//	45 s  the invocation enqueues a ticket for each lane that this process drains; from then on a lane
//	      goes to the process that claims the lane, and this process takes no further lane
//	      (see Permit.StopTaking)
//	58 s  the invocation hands over all lanes, claimed or not
//	60 s  the invocation ends
//
// After relievedFrom, any other invocation that arrives relieves the one that stays, and the
// timetable begins again. When a live host has found a message in the queue, the host polls several
// times within 7 s, and then after about 13 s. So another invocation comes in time, and this
// process keeps its lanes. A host that the platform is shutting down fetches no tickets. So no
// other invocation comes, and the lanes go to other processes.
//
// A process also drains lanes without a ticket, if it appended the messages itself. The invocation
// stays with these lanes, too. Otherwise the host could end the process during these drains.
const (
	reliefAt, reliefEvery = 10 * time.Second, 15 * time.Second
	yieldAt               = 45 * time.Second
	handOverAt            = 58 * time.Second
	stayLimit             = time.Minute
	// relievedFrom is the time before which no other invocation relieves the one that stays. So if
	// several tickets arrive together, only the invocation of the first ticket stays.
	relievedFrom = 5 * time.Second
)

// stay is a period in which invocations stay with the lanes of this process, one after the other.
// The invocation that stays has the seat. An invocation that does not take the seat only adds its
// lanes to the stay.
type stay struct {
	limited context.Context // the context of Join and Claim; ends with the stay
	whole   context.Context // the context for enqueuing tickets; goes on after the stay
	end     context.CancelFunc
	seat    *seat
	lanes   map[int]bool  // true = drained by this process, false = claimed
	open    int           // the number of lanes for which awaitLane runs
	errs    []error       // one for each lane that awaitLane has finished; nil = no error
	over    chan struct{} // closed by finishStay
}

// followedLane is a lane with which an invocation stays.
type followedLane struct {
	lane      int
	isDrained bool // true = this process drains the lane; false = this process is to claim it
	// true = the claim is for a ticket for all lanes, and this ticket is in the queue again
	isShared bool
	// the fence of the lane's holder; 0 = this process is the holder, or the fence is not known
	holderFence int64
}

// seat belongs to the one invocation that stays. Another invocation takes over by closing the
// channel "relieved" and putting its own seat into the stay.
type seat struct {
	takenAt  time.Time
	relieved chan struct{}
}

// stayWith adds lanes to the stay, and claims the lanes that other processes hold. It returns at
// once in two cases:
//   - No invocation stays, and there is no lane to stay with.
//   - Another invocation took the seat less than relievedFrom ago.
//
// Otherwise the caller's invocation takes the seat. stayWith then returns when no lane is left,
// when another invocation takes the seat, after a minute, or after ctx has ended.
func (a *Answerer) stayWith(ctx context.Context, lanes []followedLane) error {
	a.mu.Lock()
	s := a.staying
	if s == nil {
		lanes = a.addHeld(lanes)
	}

	switch {
	case s == nil && len(lanes) == 0:
		a.mu.Unlock()
		return nil
	case s == nil || s.limited.Err() != nil:
		if a.keptUnder == nil {
			a.keptUnder = map[int]int64{}
		}

		s = &stay{whole: context.WithoutCancel(ctx), lanes: map[int]bool{},
			over: make(chan struct{})}
		s.limited, s.end = context.WithCancel(s.whole)
		a.staying = s

	case a.Now().Sub(s.seat.takenAt) < relievedFrom:
		a.followLanes(s, lanes)
		a.mu.Unlock()
		return nil

	default:
		close(s.seat.relieved)
	}

	mine := &seat{takenAt: a.Now(), relieved: make(chan struct{})}
	s.seat = mine
	a.Permit.Attend()
	a.followLanes(s, lanes)
	a.mu.Unlock()

	return a.keepSeat(ctx, s, mine)
}

// keepSeat follows the timetable at the top of this file until the stay is over, or until another
// invocation has taken the seat.
func (a *Answerer) keepSeat(ctx context.Context, s *stay, mine *seat) error {
	relief, yield := time.NewTimer(reliefAt), time.NewTimer(yieldAt)
	handOver, limit := time.NewTimer(handOverAt), time.NewTimer(stayLimit)
	for _, t := range []*time.Timer{relief, yield, handOver, limit} {
		defer t.Stop()
	}

	for {
		// After the end of the stay or of this seat, no ticket and no hand-over is needed. These
		// checks come first, because the select below could choose a timer even after such an end.
		if isClosed(s.over) {
			return errors.Join(s.errs...)
		}
		if isClosed(mine.relieved) {
			return nil
		}

		select {
		case <-s.over:
		case <-mine.relieved:
		case <-relief.C:
			relief.Reset(reliefEvery)
			a.enqueueRelief(s)
		case <-yield.C:
			relief.Stop()
			a.yieldLanes(s, mine)
		case <-handOver.C:
			a.handOverLanes(s, mine)
		case <-limit.C:
			a.endStay(s, mine)
		case <-ctx.Done(): // the host has given up the invocation
			a.handOverLanes(s, mine)
			a.endStay(s, mine)
			ctx = s.whole
		}
	}
}

// isClosed reports whether a channel is closed. The channel must never get a value.
func isClosed(signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	default:
		return false
	}
}

// enqueueRelief enqueues a ticket if this process drains a lane. The ticket may name any lane,
// because the ticket's invocation only has to relieve this invocation.
func (a *Answerer) enqueueRelief(s *stay) {
	a.followHeld(s)
	if drained := a.drainedLanes(s); len(drained) > 0 {
		a.enqueueFor(s, a.Tickets.EnqueueRelief, drained[:1])
	}
}

// yieldLanes enqueues a ticket for each lane that this process drains. If this invocation still has
// the seat, this process from then on takes no further lane, and hands a lane over to a process
// that claims the lane.
func (a *Answerer) yieldLanes(s *stay, mine *seat) {
	a.mu.Lock()
	if a.hasSeat(s, mine) {
		a.Permit.Yield()
		a.Permit.StopTaking()
	}

	a.mu.Unlock()
	a.followHeld(s)
	a.enqueueFor(s, a.Tickets.EnqueueNow, a.drainedLanes(s))
}

// handOverLanes hands over all lanes that this process drains, if this invocation still has the
// seat.
func (a *Answerer) handOverLanes(s *stay, mine *seat) {
	a.followHeld(s)
	drained := a.drainedLanes(s)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.hasSeat(s, mine) {
		return
	}

	a.Permit.Yield()
	for _, lane := range drained {
		a.Drainer.HandOver(lane)
	}
}

// endStay ends the waits for drains and claims, if this invocation still has the seat.
func (a *Answerer) endStay(s *stay, mine *seat) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hasSeat(s, mine) {
		s.end()
	}
}

// hasSeat reports whether "mine" is still the seat of the present stay. The caller holds mu.
func (a *Answerer) hasSeat(s *stay, mine *seat) bool { return a.staying == s && s.seat == mine }

// enqueueFor enqueues a ticket for each lane. It only logs a failure, because awaitLane enqueues a
// further ticket for the lane.
func (a *Answerer) enqueueFor(s *stay, enqueue func(context.Context, int) error, lanes []int) {
	for _, lane := range lanes {
		if err := enqueue(s.whole, lane); err != nil {
			a.Logger.Warn("process: ticket not enqueued", "lane", lane, "err", err)
		}
	}
}

// drainedLanes returns the lanes of a stay that this process drains, in ascending order.
func (a *Answerer) drainedLanes(s *stay) (lanes []int) {
	a.mu.Lock()
	defer a.mu.Unlock()

	for lane := range a.Lanes {
		if s.lanes[lane] {
			lanes = append(lanes, lane)
		}
	}

	return lanes
}

// followHeld adds the lanes of Drainer.Held to a stay. It does nothing if the stay has ended.
func (a *Answerer) followHeld(s *stay) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.staying == s && s.limited.Err() == nil {
		a.followLanes(s, a.addHeld(nil))
	}
}

// addHeld returns the given lanes, followed by all other lanes that this process drains.
func (a *Answerer) addHeld(lanes []followedLane) []followedLane {
	for _, held := range a.Drainer.Held() {
		if !slices.ContainsFunc(lanes, func(l followedLane) bool { return l.lane == held }) {
			lanes = append(lanes, followedLane{lane: held, isDrained: true})
		}
	}
	return lanes
}

// followLanes adds lanes to a stay, except lanes that the stay already has. If awaitLane then runs
// for no lane, followLanes finishes the stay. The caller holds mu.
func (a *Answerer) followLanes(s *stay, lanes []followedLane) {
	for _, l := range lanes {
		if _, known := s.lanes[l.lane]; !known {
			s.lanes[l.lane] = l.isDrained
			s.open++
			go a.awaitLane(s, l)
		}
	}

	if s.open == 0 {
		a.finishStay(s)
	}
}

// awaitLane calls finishLane. After the last lane, awaitLane finishes the stay. It does so after a
// panic, too: otherwise the invocation would not end.
func (a *Answerer) awaitLane(s *stay, l followedLane) {
	err := panics.Catch(func() error { return a.finishLane(s, l) })
	a.mu.Lock()
	defer a.mu.Unlock()
	s.errs = append(s.errs, err)
	if s.open--; s.open > 0 {
		return
	}

	var held []followedLane
	if s.limited.Err() == nil {
		held = a.addHeld(nil)
	}

	a.followLanes(s, held)
}

// finishLane waits for the end of a lane's claim and drain, and then enqueues the ticket that the
// lane needs.
func (a *Answerer) finishLane(s *stay, l followedLane) error {
	lane, report := l.lane, drain.Report{State: drain.Working}
	if !l.isDrained {
		report = a.Drainer.Claim(s.limited, lane)
	}

	stillBusy := report.State == drain.Busy
	if report.Err == nil && report.State == drain.Working {
		report = a.joinDrain(s, lane)
	}

	a.mu.Lock()
	if stillBusy {
		a.keptUnder[lane] = l.holderFence
	}

	delete(s.lanes, lane) // so that the next ticket for the lane can add the lane again
	a.mu.Unlock()
	if stillBusy && l.isShared {
		return nil
	}

	return a.enqueueTicket(s.whole, lane, report)
}

// joinDrain waits until the drain has ended, or until endStay ends the wait.
func (a *Answerer) joinDrain(s *stay, lane int) drain.Report {
	a.mu.Lock()
	s.lanes[lane] = true
	a.mu.Unlock()

	for {
		limited, cancel := context.WithTimeout(s.limited, stayLimit)
		report := a.Drainer.Join(limited, lane)

		// another invocation took the seat, so the stay goes on
		again := limited.Err() != nil && s.limited.Err() == nil
		cancel()
		if !again {
			return report
		}
	}
}

// finishStay ends a stay that has no lane left. The caller holds mu.
func (a *Answerer) finishStay(s *stay) {
	if a.staying == s {
		a.staying = nil
		a.Permit.Yield()
	}
	s.end()
	close(s.over)
}
