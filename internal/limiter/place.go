package limiter

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Place is the place of one lane in the queue for slots. It is used by one goroutine.
type Place struct {
	limiter *Limiter
	notify  func() // tells the lane to call Ask again
	needs   int    // slots for which the lane waits; 0 = it is not in the queue
	askedAt time.Time
}

// NewPlace returns a place that is not in the queue. The Limiter calls notify, from another
// goroutine, when the result of Ask may have changed.
func (l *Limiter) NewPlace(notify func()) *Place { return &Place{limiter: l, notify: notify} }

// Ask asks for the slots of an attempt with so many requests, at least one. It returns how long the
// lane should wait before it begins the attempt: 0 = it should call Begin now.
func (p *Place) Ask(requests int) time.Duration {
	l := p.limiter
	now := l.cfg.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.startReserving()

	if p.needs == 0 {
		p.askedAt = now
	}

	// The place is also gone if the end of Begin's wait came together with a slot.
	if !slices.Contains(l.places, p) {
		l.places = append(l.places, p)
	}

	p.needs = max(1, requests)
	l.dropOver(now)
	ahead := l.promised
	for _, w := range l.waiting {
		ahead += w.needs
	}

	for _, other := range l.places {
		if other == p {
			break
		}
		ahead += other.needs
	}

	if len(l.slots) < ahead+p.needs {
		return unknownWait
	}

	return max(0, l.clock.toLocal(l.slots[ahead]).Sub(now)-readyAhead)
}

// Leave takes the lane out of the queue.
func (p *Place) Leave() {
	if p.needs == 0 {
		return
	}

	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	p.needs = 0
	l.removePlace(p)
	l.notifyPlaces()
}

// removePlace takes a lane out of the queue. The caller holds mu.
func (l *Limiter) removePlace(p *Place) {
	l.places = slices.DeleteFunc(l.places, func(other *Place) bool { return other == p })
}

// Begin waits for the first slot of the attempt for which the lane has asked. The requests of the
// attempt must have the returned context, and the caller calls end after the last of them. Begin
// returns ErrNoSlot if the slots went to other requests; the lane then asks again.
func (p *Place) Begin(ctx context.Context) (attempt context.Context, end func(), err error) {
	l, needs := p.limiter, max(1, p.needs)
	expired := time.NewTimer(longestBegin)
	defer expired.Stop()
	if err := l.await(ctx, &l.starting, &waiter{needs: needs, place: p}, expired.C); err != nil {
		return nil, nil, err
	}

	if p.needs > 0 {
		l.recordWait(p.askedAt)
	}

	p.needs = 0
	t := &turn{hasFirst: true, firstAt: l.cfg.Now(), left: needs - 1}
	end = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.left > 0 {
			l.breakPromise(t.left)
			t.left = 0
			l.notifyPlaces()
		}
	}

	return context.WithValue(ctx, turnKey{l}, t), end, nil
}

// IsNoSlot reports whether err means that the slots of an attempt went to other requests.
func IsNoSlot(err error) bool { return errors.Is(err, ErrNoSlot) }

// notifyPlaces tells the lanes that wait to ask again. The caller holds mu.
func (l *Limiter) notifyPlaces() {
	for _, p := range l.places {
		p.notify()
	}
}

// turnKey is the context key of an attempt's turn at one Limiter.
type turnKey struct{ l *Limiter }

// turn is the part of an attempt that a Limiter knows. Fields are guarded by the Limiter's mu.
type turn struct {
	hasFirst bool // the first slot was not used yet
	firstAt  time.Time
	left     int // further slots that are promised to the attempt
}

// useFirst reports whether a request may use the first slot of the attempt, which has just come.
func (t *turn) useFirst(l *Limiter) bool {
	now := l.cfg.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !t.hasFirst {
		return false
	}

	t.hasFirst = false

	return now.Sub(t.firstAt) <= lateness
}

// takeLeft returns the number of requests that the attempt may still make, and the promise of their
// slots ends: the next request asks for the slots of all of them.
func (t *turn) takeLeft(l *Limiter) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := t.left
	l.breakPromise(left)
	t.left = 0

	return left
}

// returnLeft records that further slots are promised to the attempt.
func (t *turn) returnLeft(l *Limiter, left int) {
	if t == nil {
		return
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	t.left = left
}
