// Package ticket rings lanes through the queue. A ticket is a bell, never the message
// itself: it says that a lane has work, in one line of plain text. It is never JSON,
// because the Functions host merges a JSON message's fields into the trigger's metadata.
//
// The merge rule: an instance puts a ticket for a lane only when none of its own becomes
// visible there by the time one is needed. So about one ticket per lane and instance
// exists, however many messages arrive. A ring that is lost costs time, not messages: the
// sweep looks at every lane each minute.
package ticket

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/internal/storage"
)

const prefix = "weir lane "

// consumedAfter is how long past its moment a ticket of ours is still believed to be
// there: the host polls at least once a minute.
const consumedAfter = time.Minute

// maxDelay is the longest visibility delay the queue takes.
const maxDelay = 7 * 24 * time.Hour

// Encode writes the ticket of a lane.
func Encode(epoch, lane int) string { return fmt.Sprintf("%s%d.%d", prefix, epoch, lane) }

// Decode reads what Encode wrote, and nothing else.
func Decode(text string) (epoch, lane int, err error) {
	e, l, ok := strings.Cut(strings.TrimPrefix(text, prefix), ".")
	epoch, errEpoch := strconv.Atoi(e)
	lane, errLane := strconv.Atoi(l)
	if !ok || errEpoch != nil || errLane != nil || Encode(epoch, lane) != text || epoch < 0 || lane < 0 {
		return 0, 0, fmt.Errorf("decode ticket: not a ticket of ours")
	}
	return epoch, lane, nil
}

// Config says where and how a Bell rings.
type Config struct {
	Queue              storage.Queue
	Epoch              int
	MinDelay, MaxDelay time.Duration // of a ring: drawn between them
	Now                func() time.Time
}

// Bell puts tickets under the merge rule. Safe for concurrent use.
type Bell struct {
	cfg Config

	mu  sync.Mutex
	own map[int][]time.Time // by lane: when our tickets become visible
}

// New makes a Bell that has rung nothing yet.
func New(cfg Config) *Bell { return &Bell{cfg: cfg, own: map[int][]time.Time{}} }

// Ring asks for a ticket within the ring's delay from now. No error when one of our own
// comes by then anyway.
func (b *Bell) Ring(ctx context.Context, lane int) error {
	now := b.cfg.Now()
	return b.put(ctx, lane, now, now.Add(between(b.cfg.MinDelay, b.cfg.MaxDelay)), now.Add(b.cfg.MaxDelay))
}

// RingAt asks for a ticket at a moment.
func (b *Bell) RingAt(ctx context.Context, lane int, at time.Time) error {
	return b.put(ctx, lane, b.cfg.Now(), at, at)
}

// PutBack asks for a ticket after about d, drawn so that instances do not meet again.
func (b *Bell) PutBack(ctx context.Context, lane int, d time.Duration) error {
	now := b.cfg.Now()
	latest := now.Add(d * 5 / 4)
	return b.put(ctx, lane, now, now.Add(between(d*3/4, d*5/4)), latest)
}

// Seen says that a ticket of the lane has arrived: what was visible is used up.
func (b *Bell) Seen(lane int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(lane, b.cfg.Now())
}

// put makes one ticket visible at the moment given, unless one of our own is there by
// the time it is needed.
func (b *Bell) put(ctx context.Context, lane int, now, at, needed time.Time) error {
	delay := min(max(0, at.Sub(now)), maxDelay)
	// The queue counts whole seconds.
	visible := now.Add((delay + time.Second - 1).Truncate(time.Second))
	if !b.claim(lane, now, visible, needed) {
		return nil
	}
	err := b.cfg.Queue.Put(ctx, Encode(b.cfg.Epoch, lane), delay)
	if err != nil {
		b.disclaim(lane, visible)
		return fmt.Errorf("put ticket: %w", err)
	}
	return nil
}

// claim notes a ticket before it is put, so that rings meanwhile do not put another.
func (b *Bell) claim(lane int, now, visible, needed time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(lane, now.Add(-consumedAfter))
	for _, at := range b.own[lane] {
		if !at.After(needed) {
			return false
		}
	}
	b.own[lane] = append(b.own[lane], visible)
	return true
}

// disclaim takes a note back whose ticket could not be put: the next ring puts one.
func (b *Bell) disclaim(lane int, visible time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, at := range b.own[lane] {
		if at.Equal(visible) {
			b.own[lane] = append(b.own[lane][:i], b.own[lane][i+1:]...)
			return
		}
	}
}

// forget drops the notes of tickets visible by the moment given.
func (b *Bell) forget(lane int, by time.Time) {
	var left []time.Time
	for _, at := range b.own[lane] {
		if at.After(by) {
			left = append(left, at)
		}
	}
	if len(left) == 0 {
		delete(b.own, lane)
		return
	}
	b.own[lane] = left
}

func between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + rand.N(high-low)
}
