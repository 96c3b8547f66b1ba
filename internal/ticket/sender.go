package ticket

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/storage"
)

const (
	// defaultMaxDelay is long enough to spread the tickets of many instances, and short enough for a
	// message that waits.
	defaultMaxDelay = 10 * time.Second

	// defaultCountsFor is how long a visible ticket still counts as pending: the host polls at least once a minute.
	defaultCountsFor = time.Minute

	// takenElsewhereAfter is the time that EnqueueRelief waits for a visible ticket to arrive at this
	// instance. After that it assumes that another instance has taken the ticket.
	takenElsewhereAfter = 10 * time.Second

	// maxLaneTickets is the largest number of tickets for single lanes that an instance has at a time. These tickets,
	// the tickets for all lanes and the ticket of the invocation that stays are together fewer than 16. Target-based
	// scaling divides the queue's length by batchSize in host.json, which is 16. So more tickets would start instances
	// without work.
	maxLaneTickets = 8

	// queueResolution is the accuracy of visibility: the queue counts whole seconds, by a clock of
	// its own.
	queueResolution = time.Second

	// putTimeout bounds a put in the background.
	putTimeout = 10 * time.Second

	// maxQueueDelay is the longest visibility delay that the queue accepts.
	maxQueueDelay = 7 * 24 * time.Hour
)

// Config configures a Sender.
type Config struct {
	Queue              storage.Queue
	Epoch              int
	MinDelay, MaxDelay time.Duration    // bounds of the random visibility delay; if MaxDelay is 0, it is 10 s
	NoDelay            bool             // if set, both MinDelay and MaxDelay are 0
	CountsFor          time.Duration    // how long a visible ticket still counts as pending; 0 = a minute
	Now                func() time.Time // nil = time.Now
	Rand               func() float64   // 0 to 1, called concurrently; nil = math/rand
	Log                *slog.Logger     // nil = no logs
}

func (c Config) withDefaults() Config {
	if c.MaxDelay == 0 {
		c.MaxDelay = defaultMaxDelay
	}
	c.MaxDelay = max(c.MaxDelay, c.MinDelay)
	if c.NoDelay {
		c.MinDelay, c.MaxDelay = 0, 0
	}
	if c.CountsFor == 0 {
		c.CountsFor = defaultCountsFor
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Sender puts tickets into the queue under the merge rule. It is safe for concurrent use.
type Sender struct {
	cfg Config

	mu      sync.Mutex
	pending []*pendingTicket // tickets that this process has put or is about to put; see the package's comment

	isLeaving  atomic.Bool    // this process takes no lane any more
	background sync.WaitGroup // puts of EnqueueAsync
}

// pendingTicket is a pending ticket of this process.
type pendingTicket struct {
	lane       int // or AllLanes
	visibleAt  time.Time
	isRequeued bool // put by Requeue
}

func (t *pendingTicket) leadsTo(lane int) bool { return t.lane == lane || t.lane == AllLanes }

// New returns a Sender without pending tickets.
func New(cfg Config) *Sender { return &Sender{cfg: cfg.withDefaults()} }

// Enqueue puts a ticket that becomes visible after MinDelay to MaxDelay, unless a pending ticket becomes
// visible before MaxDelay is over. The error is storage's, wrapped. After an error the ticket does not
// count as pending, so the next call puts another. The caller's own work need not fail because of the error.
func (s *Sender) Enqueue(ctx context.Context, lane int) error {
	now := s.cfg.Now()
	return s.enqueue(ctx, lane, now, s.drawDelay(s.cfg.MinDelay, s.cfg.MaxDelay), s.cfg.MaxDelay)
}

// EnqueueNow puts a ticket that is visible at once, unless a pending ticket that leads to the lane becomes visible
// within a second. It ignores tickets that are visible already: another instance may have taken such a ticket and
// looked at the lane before the last message was filed, or when the lane did not have to move yet.
func (s *Sender) EnqueueNow(ctx context.Context, lane int) error {
	return s.enqueueFresh(ctx, lane, 0, 0)
}

// EnqueueRelief puts a ticket for another invocation, which relieves this one. It puts no ticket if a pending
// ticket is enough. A pending ticket is enough if it becomes visible soon: within MaxDelay, but at most within
// ten seconds. A pending ticket that became visible at most takenElsewhereAfter ago is enough, too.
func (s *Sender) EnqueueRelief(ctx context.Context, lane int) error {
	return s.enqueueFresh(ctx, lane, takenElsewhereAfter, min(s.cfg.MaxDelay, defaultMaxDelay))
}

// enqueueFresh puts a ticket that is visible at once, unless a pending ticket becomes visible within the time
// span latest, or has been visible for at most maxVisible.
func (s *Sender) enqueueFresh(ctx context.Context, lane int, maxVisible, latest time.Duration) error {
	now := s.cfg.Now()
	s.forgetVisible(lane, now.Add(-maxVisible))
	return s.enqueue(ctx, lane, now, 0, latest)
}

// forgetVisible removes the pending tickets that lead to the lane and became visible before the given time.
func (s *Sender) forgetVisible(lane int, before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropTickets(func(t *pendingTicket) bool {
		return t.leadsTo(lane) && t.visibleAt.Before(before)
	})
}

// Leave is called when this process takes no lane any more, and still files messages. From then on other
// processes get its tickets, and this process does not learn when they get them. So EnqueueAsync ignores
// tickets that may have been visible before the message was filed; see delayAfterLeave.
func (s *Sender) Leave() { s.isLeaving.Store(true) }

// EnqueueAsync is Enqueue for a caller that must not wait for the queue. It decides at once whether a ticket is
// needed, puts the ticket in the background, and logs a failure. After Leave its tickets are visible earlier.
func (s *Sender) EnqueueAsync(lane int) {
	now := s.cfg.Now()
	delay, latest := roundUpToSeconds(s.drawDelay(s.cfg.MinDelay, s.cfg.MaxDelay)), s.cfg.MaxDelay
	if s.isLeaving.Load() {
		delay = s.delayAfterLeave(lane, now)
		latest = delay
	}
	reserved := s.reserveTicket(lane, now, now.Add(delay), now.Add(latest))
	if reserved == nil {
		return
	}
	s.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), putTimeout)
		defer cancel()
		if err := s.putTicket(ctx, reserved, delay); err != nil {
			s.cfg.Log.Warn("ticket: not put", "lane", lane, "err", err)
		}
	})
}

// delayAfterLeave is for a message that was filed after Leave. It returns the visibility delay of the ticket for
// that message. The delay is two seconds if another ticket became visible within the last second, or becomes visible
// within the next two seconds. Otherwise it is 0. So a burst of messages leads to about one ticket a second, and a
// ticket becomes visible after the last message. Tickets that may be visible already no longer count as pending.
func (s *Sender) delayAfterLeave(lane int, now time.Time) (delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	surelyHidden := now.Add(queueResolution)
	s.dropTickets(func(t *pendingTicket) bool {
		if !t.leadsTo(lane) {
			return false
		}
		if t.visibleAt.After(now.Add(-queueResolution)) && !t.visibleAt.After(now.Add(2*queueResolution)) {
			delay = 2 * queueResolution
		}
		return t.visibleAt.Before(surelyHidden)
	})
	return delay
}

// Wait waits until the puts of EnqueueAsync have ended, or ctx ends.
func (s *Sender) Wait(ctx context.Context) {
	done := make(chan struct{})
	go func() { s.background.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// EnqueueAt puts a ticket that becomes visible at the time needed, or up to a second later. If that time has
// passed, the ticket is visible at once. EnqueueAt puts no ticket if a pending ticket is visible by that time.
func (s *Sender) EnqueueAt(ctx context.Context, lane int, needed time.Time) error {
	now := s.cfg.Now()
	return s.enqueue(ctx, lane, now, needed.Sub(now), needed.Sub(now))
}

// Requeue puts a new ticket in the place of a received one: another process holds the lane, or the host has given the
// received ticket up. The parameter about says after what time the new ticket becomes visible. Requeue makes it up to
// a quarter shorter or longer, so that the processes that wait for one lane do not meet again. Requeue puts no ticket
// if a pending ticket is visible by the end of the longest such time. The host deletes the received ticket.
func (s *Sender) Requeue(ctx context.Context, lane int, about time.Duration) error {
	now := s.cfg.Now()
	delay := roundUpToSeconds(s.drawDelay(about*3/4, about*5/4))
	reserved := s.reserveTicket(lane, now, now.Add(delay), now.Add(about*5/4))
	if reserved == nil {
		return nil
	}
	s.mu.Lock()
	reserved.isRequeued = true
	s.mu.Unlock()
	return s.putTicket(ctx, reserved, delay)
}

// AwaitsRequeued reports whether a ticket that Requeue has put for the lane is not visible yet.
func (s *Sender) AwaitsRequeued(lane int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	return slices.ContainsFunc(s.pending, func(t *pendingTicket) bool {
		return t.lane == lane && t.isRequeued && t.visibleAt.After(now)
	})
}

// MarkReceived is called when a ticket of the lane, or of AllLanes, has arrived. This process may have put that
// ticket. So MarkReceived takes all tickets of this process that have the same lane number and are visible by now:
// they no longer count as pending. Call MarkReceived before looking for work in the lane: a message that is filed
// after that look must lead to a ticket.
func (s *Sender) MarkReceived(lane int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := s.cfg.Now().Add(queueResolution)
	s.dropTickets(func(t *pendingTicket) bool { return t.lane == lane && !t.visibleAt.After(by) })
}

// enqueue puts a ticket that becomes visible after delay. It puts no ticket if a pending ticket will be visible
// when the time span latest has passed.
func (s *Sender) enqueue(ctx context.Context, lane int, now time.Time, delay, latest time.Duration) error {
	delay = roundUpToSeconds(delay)
	reserved := s.reserveTicket(lane, now, now.Add(delay), now.Add(max(latest, 0)))
	if reserved == nil {
		return nil
	}
	return s.putTicket(ctx, reserved, delay)
}

func (s *Sender) putTicket(ctx context.Context, reserved *pendingTicket, delay time.Duration) error {
	if err := s.cfg.Queue.Put(ctx, Encode(s.cfg.Epoch, reserved.lane), delay); err != nil {
		// Storage may have put the ticket. It no longer counts all the same: one ticket too many costs less than one
		// too few.
		s.cancelTicket(reserved)
		return fmt.Errorf("put ticket of lane %d: %w", reserved.lane, err)
	}
	s.cfg.Log.Debug("ticket: put", "lane", reserved.lane, "delay_ms", delay.Milliseconds())
	return nil
}

// reserveTicket records a ticket as pending before it is put, so that concurrent calls put no other
// ticket and need not wait for this one. It returns nil if a pending ticket is visible by the time
// needed. If there are maxLaneTickets already, the reserved ticket is one for all lanes.
func (s *Sender) reserveTicket(lane int, now, visibleAt, needed time.Time) *pendingTicket {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropTickets(func(t *pendingTicket) bool { return !t.visibleAt.After(now.Add(-s.cfg.CountsFor)) })
	if s.isExpected(lane, needed) || s.isExpected(AllLanes, needed) {
		return nil
	}
	if s.countLaneTickets() >= maxLaneTickets {
		lane = AllLanes
	}
	t := &pendingTicket{lane: lane, visibleAt: visibleAt}
	s.pending = append(s.pending, t)
	return t
}

// isExpected reports whether a pending ticket of the lane is visible by the time needed. The
// caller holds mu.
func (s *Sender) isExpected(lane int, needed time.Time) bool {
	// queueResolution is added, because the delay of a pending ticket was rounded up to whole seconds.
	return slices.ContainsFunc(s.pending, func(t *pendingTicket) bool {
		return t.lane == lane && !t.visibleAt.After(needed.Add(queueResolution))
	})
}

// countLaneTickets returns the number of pending tickets of single lanes. The caller holds mu.
func (s *Sender) countLaneTickets() (count int) {
	for _, t := range s.pending {
		if t.lane != AllLanes {
			count++
		}
	}
	return count
}

// cancelTicket removes a ticket from the pending tickets, because its put failed.
func (s *Sender) cancelTicket(failed *pendingTicket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropTickets(func(t *pendingTicket) bool { return t == failed })
}

// dropTickets removes pending tickets. The caller holds mu.
func (s *Sender) dropTickets(match func(*pendingTicket) bool) {
	s.pending = slices.DeleteFunc(s.pending, match)
}

// roundUpToSeconds rounds a delay up to whole seconds, and limits it to the range that the queue accepts.
func roundUpToSeconds(d time.Duration) time.Duration {
	d = min(max(0, d), maxQueueDelay)
	return (d + time.Second - 1).Truncate(time.Second)
}

func (s *Sender) drawDelay(low, high time.Duration) time.Duration {
	return low + time.Duration(s.cfg.Rand()*float64(high-low))
}
