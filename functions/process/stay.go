package process

import (
	"context"
	"errors"
	"slices"
	"time"

	"weir/internal/drain"
)

// A Functions host may end a process while none of its invocations is in flight, and no host lets an invocation
// run for ever. So the invocations of a process relieve each other. This is the timetable of an invocation:
//
//	0 s   an invocation begins to stay with the lanes that this process drains or claims
//	10 s  if this process drains a lane, the invocation enqueues a ticket, whose invocation is to relieve it;
//	      it does so again at 25 s and 40 s
//	45 s  if no other invocation has come, the staying one enqueues a ticket for each lane that this process
//	      drains; from then on a lane goes to the process that claims it, and this process takes no further
//	      lane for ten minutes, or until the host calls a queue or timer function again
//	58 s  the invocation hands over all lanes, claimed or not
//	60 s  the invocation ends
//
// A live host fetches a ticket within seconds. When it has found a message, its first polls come 0.1 to 7 s later,
// and the poll after them comes 13 s later. Any invocation that arrives relieves the one that stays, and the
// timetable begins again. So the lanes of a live host do not move. A host that the platform is shutting down fetches
// no tickets, so its lanes move.
//
// A process also takes lanes without a ticket, for messages that it files itself. The invocation stays with those
// lanes, too. Otherwise no invocation might be in flight, and the platform would then end a host that it is shutting
// down.
const (
	reliefAt, reliefEvery = 10 * time.Second, 15 * time.Second
	yieldAt               = 45 * time.Second
	handOverAt            = 58 * time.Second
	stayLimit             = time.Minute
	// relievedFrom is the time for which an invocation stays before another one can relieve it. If several tickets
	// arrive together, only the invocation of the first ticket stays, and the function answers the other tickets at
	// once.
	relievedFrom = 5 * time.Second
)

// stay is the time in which invocations of a process stay with its lanes, one after the other. The invocation that
// stays has the seat. Any other invocation adds its lanes to the stay, and is answered at once. When a lane's claim
// or drain is over, the function enqueues the ticket that the lane needs; see awaitLane.
type stay struct {
	limited context.Context // the context of joins and claims; it ends with the stay
	whole   context.Context // the context for enqueuing tickets; it outlives the stay
	end     context.CancelFunc
	seat    *seat
	lanes   map[int]bool  // true = drained by this process, false = claimed
	open    int           // the number of lanes for which awaitLane runs
	errs    []error       // the errors of the tickets and reports of all lanes; nil for a lane without an error
	over    chan struct{} // closed by finishStay
}

// followedLane is a lane with which an invocation stays.
type followedLane struct {
	lane        int
	isDrained   bool  // true = this process drains the lane; false = this process is to claim it
	isShared    bool  // true = the claim is for a ticket for all lanes, which answerAll has requeued
	holderFence int64 // the fence of the lane's holder; 0 = this process is the holder, or the fence is not known
}

// seat is the place of the one invocation that stays. Another invocation takes the place by closing the channel
// "relieved".
type seat struct {
	takenAt  time.Time
	relieved chan struct{}
}

// stayWith adds lanes to the stay, and claims those that other processes hold. If another invocation took the seat
// less than relievedFrom ago, stayWith then returns. Otherwise the caller's invocation takes the seat, and stayWith
// returns when no lane is left, when another invocation relieves this one, after a minute, or after ctx has ended. If
// no invocation stays and there is no lane to stay with, stayWith returns at once.
func (f *Function) stayWith(ctx context.Context, lanes []followedLane) error {
	f.mu.Lock()
	s := f.staying
	if s == nil {
		lanes = f.addHeld(lanes)
	}
	switch {
	case s == nil && len(lanes) == 0:
		f.mu.Unlock()
		return nil
	case s == nil || s.limited.Err() != nil:
		if f.keptUnder == nil {
			f.keptUnder = map[int]int64{}
		}
		s = &stay{whole: context.WithoutCancel(ctx), lanes: map[int]bool{}, over: make(chan struct{})}
		s.limited, s.end = context.WithCancel(s.whole)
		f.staying = s
	case f.Now().Sub(s.seat.takenAt) < relievedFrom:
		f.followLanes(s, lanes)
		f.mu.Unlock()
		return nil
	default:
		close(s.seat.relieved)
	}
	mine := &seat{takenAt: f.Now(), relieved: make(chan struct{})}
	s.seat = mine
	f.Holder.Attend()
	f.followLanes(s, lanes)
	f.mu.Unlock()
	return f.keepSeat(ctx, s, mine)
}

// keepSeat follows the timetable above, until the stay is over or another invocation has taken the seat.
func (f *Function) keepSeat(ctx context.Context, s *stay, mine *seat) error {
	relief, yield := time.NewTimer(reliefAt), time.NewTimer(yieldAt)
	handOver, limit := time.NewTimer(handOverAt), time.NewTimer(stayLimit)
	for _, t := range []*time.Timer{relief, yield, handOver, limit} {
		defer t.Stop()
	}
	for {
		// This check comes first, because a timer may have fired at the same moment. The ticket or the hand-over of
		// that timer would come too late: the lanes are free by now, or another invocation stays with them.
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
			f.enqueueRelief(s)
		case <-yield.C:
			relief.Stop()
			f.yieldLanes(s, mine)
		case <-handOver.C:
			f.handOverLanes(s, mine)
		case <-limit.C:
			f.endStay(s, mine)
		case <-ctx.Done(): // the host has given up the invocation
			f.handOverLanes(s, mine)
			f.endStay(s, mine)
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

// enqueueRelief enqueues a ticket whose invocation relieves this one, if this process drains a lane. It does not
// matter which lane the ticket names.
func (f *Function) enqueueRelief(s *stay) {
	f.followHeld(s)
	if drained := f.drainedLanes(s); len(drained) > 0 {
		f.enqueueFor(s, f.Tickets.EnqueueRelief, drained[:1])
	}
}

// yieldLanes enqueues a ticket for each lane that this process drains. If another invocation stays with the lanes by
// now, that is all. Otherwise each lane goes from then on to the process that claims it, and this process takes no
// further lane.
func (f *Function) yieldLanes(s *stay, mine *seat) {
	f.mu.Lock()
	if f.hasSeat(s, mine) {
		f.Holder.Yield()
		f.Holder.StopTaking()
	}
	f.mu.Unlock()
	f.followHeld(s)
	f.enqueueFor(s, f.Tickets.EnqueueNow, f.drainedLanes(s))
}

// handOverLanes hands over all lanes that this process drains. It does nothing if another invocation stays with the
// lanes by now.
func (f *Function) handOverLanes(s *stay, mine *seat) {
	f.followHeld(s)
	drained := f.drainedLanes(s)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.hasSeat(s, mine) {
		return
	}
	f.Holder.Yield()
	for _, lane := range drained {
		f.Holder.HandOver(lane)
	}
}

// endStay ends the waits for drains and claims. It does nothing if another invocation stays with the lanes by now.
func (f *Function) endStay(s *stay, mine *seat) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hasSeat(s, mine) {
		s.end()
	}
}

// hasSeat reports whether the invocation that took the seat "mine" still stays with the lanes. It does so until
// another invocation takes the seat or begins another stay. The caller holds mu.
func (f *Function) hasSeat(s *stay, mine *seat) bool { return f.staying == s && s.seat == mine }

// enqueueFor enqueues a ticket for each lane. If that fails, enqueueFor only logs the failure, because other tickets
// follow.
func (f *Function) enqueueFor(s *stay, enqueue func(context.Context, int) error, lanes []int) {
	for _, lane := range lanes {
		if err := enqueue(s.whole, lane); err != nil {
			f.Logger.Warn("process: ticket not enqueued", "lane", lane, "err", err)
		}
	}
}

// drainedLanes returns the lanes of a stay that this process drains, in order.
func (f *Function) drainedLanes(s *stay) (lanes []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for lane := range f.Lanes {
		if s.lanes[lane] {
			lanes = append(lanes, lane)
		}
	}
	return lanes
}

// followHeld adds lanes to a stay: those that this process drains, but took without a ticket. followHeld does nothing
// if the stay has ended.
func (f *Function) followHeld(s *stay) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.staying == s && s.limited.Err() == nil {
		f.followLanes(s, f.addHeld(nil))
	}
}

// addHeld returns the given lanes, followed by all other lanes that this process drains.
func (f *Function) addHeld(lanes []followedLane) []followedLane {
	for _, held := range f.Drainer.Held() {
		if !slices.ContainsFunc(lanes, func(l followedLane) bool { return l.lane == held }) {
			lanes = append(lanes, followedLane{lane: held, isDrained: true})
		}
	}
	return lanes
}

// followLanes adds lanes to a stay. It skips lanes that the stay already has. If the stay then awaits no lane,
// followLanes finishes it. The caller holds mu.
func (f *Function) followLanes(s *stay, lanes []followedLane) {
	for _, l := range lanes {
		if _, known := s.lanes[l.lane]; !known {
			s.lanes[l.lane] = l.isDrained
			s.open++
			go f.awaitLane(s, l)
		}
	}
	if s.open == 0 {
		f.finishStay(s)
	}
}

// awaitLane waits for the end of a lane's claim and drain, and then enqueues the ticket that the lane needs. After
// the last lane it finishes the stay.
func (f *Function) awaitLane(s *stay, l followedLane) {
	lane, report := l.lane, drain.Report{State: drain.Working}
	if !l.isDrained {
		report = f.Drainer.Claim(s.limited, lane)
	}
	stillBusy := report.State == drain.Busy
	if report.Err == nil && report.State == drain.Working {
		report = f.joinDrain(s, lane)
	}
	f.mu.Lock()
	if stillBusy {
		f.keptUnder[lane] = l.holderFence
	}
	delete(s.lanes, lane) // so that the next ticket of the lane can add it again
	f.mu.Unlock()
	var err error
	if !stillBusy || !l.isShared {
		err = f.enqueueTicket(s.whole, lane, report)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.errs = append(s.errs, err)
	if s.open--; s.open > 0 {
		return
	}
	var held []followedLane
	if s.limited.Err() == nil {
		held = f.addHeld(nil)
	}
	f.followLanes(s, held)
}

// joinDrain waits for the end of a drain, or until endStay ends the wait.
func (f *Function) joinDrain(s *stay, lane int) drain.Report {
	f.mu.Lock()
	s.lanes[lane] = true
	f.mu.Unlock()
	for {
		limited, cancel := context.WithTimeout(s.limited, stayLimit)
		report := f.Drainer.Join(limited, lane)
		again := limited.Err() != nil && s.limited.Err() == nil // other invocations have made the stay longer
		cancel()
		if !again {
			return report
		}
	}
}

// finishStay ends a stay that waits for no lane any more. The caller holds mu.
func (f *Function) finishStay(s *stay) {
	if f.staying == s {
		f.staying = nil
		f.Holder.Yield()
	}
	s.end()
	close(s.over)
}
