package notify

import (
	"context"
	"errors"
	"time"

	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/storage"
)

const (
	// While another process empties the outbox it is looked at after busyMin, then after twice
	// as long each time, up to busyMax.
	busyMin = 2 * time.Second
	busyMax = 30 * time.Second
	// trouble is the pause after storage could not be asked.
	trouble = 5 * time.Second
)

// desk looks after one outbox in this process, from the first word of mail in it until it is
// empty. Between its turns it holds nothing.
type desk struct {
	s     *Sender
	at    place
	store *lane.Store // of the outbox's epoch
	wake  chan struct{}

	// Under the Sender's lock.
	seen    storage.ETag // the note, as last looked at
	waiting int          // rows seen in the outbox
	resting bool         // nothing is due, or it cannot be sent
}

// work is the desk's goroutine.
func (d *desk) work() {
	for busy := 0; d.s.open.Err() == nil; {
		next, err := d.turn()
		switch {
		case errors.Is(err, lease.ErrBusy):
			d.rest(min(busyMin<<min(busy, 10), busyMax), nil)
			busy++
			continue
		case err != nil && d.s.open.Err() == nil:
			d.s.Log.Warn("notify: interrupted", "lane", d.at.lane, "err", err)
			d.rest(trouble+time.Duration(d.s.Rand()*float64(trouble)), nil)
		case err == nil && next.IsZero():
			if d.retire() {
				return
			}
		case err == nil:
			d.rest(next.Sub(d.s.Now()), d.wake)
		}
		busy = 0
	}
}

// retire ends the desk, unless it was nudged since it looked.
func (d *desk) retire() bool {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if len(d.wake) > 0 {
		return false
	}
	delete(d.s.desks, d.at)
	d.s.tellChange()
	return true
}

// tellChange wakes whoever waits for desks to come to rest.
func (s *Sender) tellChange() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// rest waits for a time, for a wake where one counts, or for the end.
func (d *desk) rest(wait time.Duration, wake <-chan struct{}) {
	d.s.mu.Lock()
	d.resting = len(wake) == 0
	d.s.tellChange()
	d.s.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-d.s.open.Done():
	}
	d.s.mu.Lock()
	d.resting = false
	d.s.mu.Unlock()
}

// note remembers what was seen of the outbox.
func (d *desk) note(tag storage.ETag, rows int) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.seen, d.waiting = tag, rows
}

// turn empties the outbox as far as it is due, under its lease. It gives back when more falls
// due; zero = the outbox is empty. The error is lease.ErrBusy where another process is at it.
func (d *desk) turn() (time.Time, error) {
	select {
	case <-d.wake:
	default:
	}
	control, err := d.store.Control(d.s.ctx, d.at.lane)
	if storage.Is(err, storage.NotFound) {
		return time.Time{}, nil // an earlier epoch, whose retention is over
	}
	if err != nil || control.Mail() == "" {
		return time.Time{}, err
	}
	l, err := lease.Acquire(d.s.ctx, lease.Config{Leases: d.s.Leases, Length: leaseLength, Now: d.s.Now, Log: d.s.Log}, d.store.MailLease(d.at.lane))
	if err != nil {
		return time.Time{}, err
	}
	t := &turn{desk: d, ctx: l.Context(), note: control.Mail(), fresh: true, stale: true,
		queues: map[string][]item{}, busy: map[string]int{}, served: map[string]int{}, known: map[string]bool{}, answers: make(chan answer, perLane)}
	next, err := t.run()
	releasing, cancel := context.WithTimeout(context.WithoutCancel(d.s.ctx), trouble)
	defer cancel()
	if releaseErr := l.Release(releasing); releaseErr != nil {
		d.s.Log.Warn("notify: lease not released", "lane", d.at.lane, "err", releaseErr)
	}
	return next, err
}
