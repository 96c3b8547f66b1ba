// Package ticket wakes lanes through the queue. A ticket is one line of plain text that means "lane
// L has work"; it never carries an upstream's message. A ticket is never JSON, because the
// Functions host merges a JSON message's fields into the trigger's metadata.
//
// The merge rule keeps the number of tickets small. It applies when an instance needs a ticket that
// is visible by a certain time. The instance puts no ticket if one of its own tickets, for the lane
// or for all lanes, is visible by then. If the instance has eight tickets for single lanes in the
// queue, it puts a ticket for all lanes in place of a ninth. So an instance has about ten tickets,
// regardless of the number of messages and lanes. With 16 tickets or more, the platform would add
// an instance.
//
// A Sender knows only the tickets that it has put. The merge rule counts only pending tickets. A
// ticket is pending from the time at which it is put. The ticket stops being pending in each of
// these cases:
//   - The ticket is visible, and a ticket with its lane number arrives at this instance.
//   - The ticket became visible a minute ago. By then another instance has taken the ticket.
//
// If another instance took a pending ticket within that minute, or if a put failed, a message waits
// longer. The message is not lost, because the sweep looks at each lane each minute.
package ticket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/clock"
	"weir/internal/panics"
)

const (
	prefix    = "weir lane "
	prefixAll = "weir lanes "
)

// AllLanes is the lane number of a ticket for all lanes.
const AllLanes = -1

var errNotOurs = errors.New("decode ticket: not a ticket of ours")

// Encode returns the text of a ticket for a lane, or for AllLanes.
func Encode(epoch, lane int) string {
	if lane == AllLanes {
		return prefixAll + strconv.Itoa(epoch)
	}
	return fmt.Sprintf("%s%d.%d", prefix, epoch, lane)
}

// Decode parses the text of a ticket. It accepts only results of Encode, so each ticket has one
// spelling. The error does not repeat the text, because content of the queue is not trusted.
func Decode(text string) (epoch, lane int, err error) {
	e, l, _ := strings.Cut(strings.TrimPrefix(text, prefix), ".")
	if all, ok := strings.CutPrefix(text, prefixAll); ok {
		e, l = all, strconv.Itoa(AllLanes)
	}

	epoch, epochErr := strconv.Atoi(e)
	lane, laneErr := strconv.Atoi(l)
	if epochErr != nil || laneErr != nil || epoch < 0 || lane < AllLanes ||
		Encode(epoch, lane) != text {
		return 0, 0, errNotOurs
	}

	return epoch, lane, nil
}

const (
	// defaultMaxDelay is long enough to spread the tickets of many instances over time. It is also
	// short enough for a message that waits for its ticket.
	defaultMaxDelay = 10 * time.Second

	// defaultCountsFor is the time for which a visible ticket counts as pending. The host polls the
	// queue at least once per minute, so the host has taken the ticket by then.
	defaultCountsFor = time.Minute

	// takenElsewhereAfter is the time for which EnqueueRelief relies on a visible ticket. After
	// that time, another instance has probably taken the ticket.
	takenElsewhereAfter = 10 * time.Second

	// maxLaneTickets is the largest number of an instance's pending tickets for single lanes.
	// Target-based scaling divides the queue's length by batchSize in host.json, which is 16. So 16
	// tickets or more would start instances without work. The limit of 8 leaves room for tickets
	// for all lanes, and for the ticket of an invocation that is still running.
	maxLaneTickets = 8

	// queueResolution is the accuracy of visibility: the queue counts whole seconds, by its own
	// clock.
	queueResolution = time.Second

	// putTimeout bounds each put of EnqueueAsync.
	putTimeout = 10 * time.Second

	// maxQueueDelay is the longest visibility delay that the queue accepts.
	maxQueueDelay = 7 * 24 * time.Hour
)

// Queue takes tickets; see storage.Queue.
type Queue interface {
	// Put adds a ticket that becomes visible after delay.
	Put(ctx context.Context, text string, delay time.Duration) error
}

// Config configures a Sender.
type Config struct {
	Queue              Queue
	Epoch              int
	MinDelay, MaxDelay time.Duration    // bounds of the random visibility delay; MaxDelay 0 = 10 s
	NoDelay            bool             // if set, both MinDelay and MaxDelay are 0
	CountsFor          time.Duration    // how long a visible ticket counts as pending; 0 = a minute
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

// Sender puts tickets into the queue, except tickets that are unnecessary by the merge rule (see
// the package comment). It is safe for concurrent use.
type Sender struct {
	cfg Config

	mu      sync.Mutex
	pending []*pendingTicket // tickets that this process has put or is about to put

	isLeaving  atomic.Bool    // Leave was called
	background sync.WaitGroup // puts of EnqueueAsync
}

type pendingTicket struct {
	lane       int // or AllLanes
	visibleAt  time.Time
	isRequeued bool // put by Requeue
}

func (t *pendingTicket) leadsTo(lane int) bool { return t.lane == lane || t.lane == AllLanes }

// New returns a Sender without pending tickets.
func New(cfg Config) *Sender { return &Sender{cfg: cfg.withDefaults()} }

// Enqueue puts a ticket that becomes visible after a random delay between MinDelay and MaxDelay. It
// puts no ticket if a pending ticket becomes visible within MaxDelay. An error wraps the error of
// storage. A failed put leaves no pending ticket, so the next call puts another ticket. The caller
// can ignore the error, because the sweep looks at each lane each minute.
func (s *Sender) Enqueue(ctx context.Context, lane int) error {
	now := s.cfg.Now()
	return s.enqueue(ctx, lane, now, s.drawDelay(s.cfg.MinDelay, s.cfg.MaxDelay), s.cfg.MaxDelay)
}

// EnqueueNow puts a ticket that is visible at once. It puts no ticket if a pending ticket for the
// lane or for all lanes becomes visible within a second. EnqueueNow ignores pending tickets that
// are visible already. Another instance can have taken such a ticket, and can have looked at the
// lane before the caller's work was there.
func (s *Sender) EnqueueNow(ctx context.Context, lane int) error {
	return s.enqueueFresh(ctx, lane, 0, 0)
}

// EnqueueRelief puts a ticket that is visible at once, for an invocation that takes over the
// caller's work. It puts no ticket if a pending ticket for the lane or for all lanes meets one of
// these conditions:
//   - The ticket became visible at most ten seconds ago.
//   - The ticket becomes visible within MaxDelay or within ten seconds, whichever is shorter.
func (s *Sender) EnqueueRelief(ctx context.Context, lane int) error {
	return s.enqueueFresh(ctx, lane, takenElsewhereAfter, min(s.cfg.MaxDelay, defaultMaxDelay))
}

// enqueueFresh puts a ticket that is visible at once. It puts no ticket if a pending ticket has
// been visible for at most the duration "maxVisible", or becomes visible within the duration
// "latest".
func (s *Sender) enqueueFresh(ctx context.Context, lane int, maxVisible,
	latest time.Duration) error {
	now := s.cfg.Now()
	s.mu.Lock()
	s.dropTickets(func(t *pendingTicket) bool {
		return t.leadsTo(lane) && t.visibleAt.Before(now.Add(-maxVisible))
	})
	s.mu.Unlock()

	return s.enqueue(ctx, lane, now, 0, latest)
}

// Leave is called when this process takes no lane any more, but still appends messages. From then
// on other processes receive the tickets of this process, and this process does not learn when a
// ticket was received. So EnqueueAsync no longer relies on a ticket that can have become visible
// before the message was appended.
func (s *Sender) Leave() { s.isLeaving.Store(true) }

// EnqueueAsync is Enqueue for a caller that must not wait for the queue. It decides at once whether
// a ticket is needed, puts the ticket in the background, and logs a failed put. After Leave, the
// ticket becomes visible earlier.
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
		defer panics.Log(s.cfg.Log, "ticket: put")
		ctx, cancel := context.WithTimeout(context.Background(), putTimeout)
		defer cancel()
		if err := s.putTicket(ctx, reserved, delay); err != nil {
			s.cfg.Log.Warn("ticket: not put", "lane", lane, "err", err)
		}
	})
}

// delayAfterLeave returns the visibility delay of the ticket for a message that was appended after
// Leave. The delay is two seconds if a pending ticket became visible within the last second, or
// becomes visible within the next two seconds. Otherwise the delay is 0. So a burst of messages
// causes about one ticket per second, and a ticket becomes visible after the last message.
//
// Tickets that can be visible already stop being pending.
func (s *Sender) delayAfterLeave(lane int, now time.Time) (delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	surelyHidden := now.Add(queueResolution)
	s.dropTickets(func(t *pendingTicket) bool {
		if !t.leadsTo(lane) {
			return false
		}

		if t.visibleAt.After(now.Add(-queueResolution)) &&
			!t.visibleAt.After(now.Add(2*queueResolution)) {
			delay = 2 * queueResolution
		}

		return t.visibleAt.Before(surelyHidden)
	})

	return delay
}

// Wait waits for the puts of EnqueueAsync. It returns early if ctx ends.
func (s *Sender) Wait(ctx context.Context) {
	_ = clock.WaitFor(ctx, &s.background)
}

// EnqueueAt puts a ticket that becomes visible at the time "needed", or up to a second later. If
// that time has passed, the ticket is visible at once. EnqueueAt puts no ticket if a pending ticket
// is visible by the time "needed".
func (s *Sender) EnqueueAt(ctx context.Context, lane int, needed time.Time) error {
	now := s.cfg.Now()
	return s.enqueue(ctx, lane, now, needed.Sub(now), needed.Sub(now))
}

// Requeue puts a new ticket in place of a received ticket, for example because another process
// holds the lane. The host deletes the received ticket.
//
// The new ticket becomes visible after a random delay between 3/4 and 5/4 of the duration "about".
// So processes that wait for one lane do not all try again at the same time. Requeue puts no ticket
// if a pending ticket is visible within 5/4 of "about".
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

// AwaitsRequeued reports whether Requeue has put a ticket for the lane that is not visible yet.
func (s *Sender) AwaitsRequeued(lane int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	return slices.ContainsFunc(s.pending, func(t *pendingTicket) bool {
		return t.lane == lane && t.isRequeued && t.visibleAt.After(now)
	})
}

// MarkReceived records that a ticket of the lane, or of AllLanes, has arrived. This process may
// have put the ticket. So all pending tickets with this lane number stop being pending if they are
// visible by now.
//
// Call MarkReceived before looking for work in the lane. Otherwise a message that is appended after
// the look can be left without a ticket.
func (s *Sender) MarkReceived(lane int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := s.cfg.Now().Add(queueResolution)
	s.dropTickets(func(t *pendingTicket) bool { return t.lane == lane && !t.visibleAt.After(by) })
}

// enqueue puts a ticket that becomes visible after delay. It puts no ticket if a pending ticket is
// visible already, or becomes visible within the duration "latest".
func (s *Sender) enqueue(ctx context.Context, lane int, now time.Time, delay,
	latest time.Duration) error {
	delay = roundUpToSeconds(delay)
	reserved := s.reserveTicket(lane, now, now.Add(delay), now.Add(max(latest, 0)))
	if reserved == nil {
		return nil
	}
	return s.putTicket(ctx, reserved, delay)
}

func (s *Sender) putTicket(ctx context.Context, reserved *pendingTicket,
	delay time.Duration) error {
	if err := s.cfg.Queue.Put(ctx, Encode(s.cfg.Epoch, reserved.lane), delay); err != nil {
		// Storage may have put the ticket in spite of the error. The ticket is not pending all the
		// same, because one ticket too many costs less than one too few.
		s.cancelTicket(reserved)
		return fmt.Errorf("put ticket of lane %d: %w", reserved.lane, err)
	}

	s.cfg.Log.Debug("ticket: put", "lane", reserved.lane, "delay_ms", delay.Milliseconds())
	return nil
}

// reserveTicket records a ticket as pending before the put. So a concurrent call puts no other
// ticket, and need not wait for the put. reserveTicket returns nil if a pending ticket is visible
// by the time "needed". If there are maxLaneTickets already, the reserved ticket is a ticket for
// all lanes.
func (s *Sender) reserveTicket(lane int, now, visibleAt, needed time.Time) *pendingTicket {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropTickets(func(t *pendingTicket) bool { return !t.visibleAt.After(now.Add(-s.cfg.CountsFor)) })

	// A pending ticket can become visible up to queueResolution late, because its delay was rounded
	// up to whole seconds.
	isExpected := func(t *pendingTicket) bool {
		return t.leadsTo(lane) && !t.visibleAt.After(needed.Add(queueResolution))
	}
	if slices.ContainsFunc(s.pending, isExpected) {
		return nil
	}

	ofLanes := 0
	for _, t := range s.pending {
		if t.lane != AllLanes {
			ofLanes++
		}
	}

	if ofLanes >= maxLaneTickets {
		lane = AllLanes
	}

	t := &pendingTicket{lane: lane, visibleAt: visibleAt}
	s.pending = append(s.pending, t)

	return t
}

func (s *Sender) cancelTicket(failed *pendingTicket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropTickets(func(t *pendingTicket) bool { return t == failed })
}

// dropTickets removes pending tickets. The caller holds mu.
func (s *Sender) dropTickets(match func(*pendingTicket) bool) {
	s.pending = slices.DeleteFunc(s.pending, match)
}

// roundUpToSeconds rounds a delay up to whole seconds, and limits it to the range that the queue
// accepts.
func roundUpToSeconds(d time.Duration) time.Duration {
	d = min(max(0, d), maxQueueDelay)
	return (d + time.Second - 1).Truncate(time.Second)
}

func (s *Sender) drawDelay(low, high time.Duration) time.Duration {
	return low + time.Duration(s.cfg.Rand()*float64(high-low))
}
