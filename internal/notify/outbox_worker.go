package notify

import (
	"context"
	"errors"
	"time"

	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/notify/outbox"
	"weir/internal/storage"
)

const (
	// While another process empties the outbox, the worker tries to get the lease after minBusyRetry. After
	// each further failure the wait doubles, up to maxBusyRetry.
	minBusyRetry = 2 * time.Second
	maxBusyRetry = 30 * time.Second
	// storageRetryDelay is the shortest pause after a failure of storage.
	storageRetryDelay = 5 * time.Second
	releaseTimeout    = 5 * time.Second
)

// outboxWorker empties one outbox in this process. It starts when the process learns of an event in the outbox,
// and ends when the outbox is empty. Between two sessions it does not have the lease.
type outboxWorker struct {
	sender *Sender
	outbox outboxID
	store  *lane.Store // store of the outbox's epoch
	rows   outbox.Outbox
	wake   chan struct{}

	// The lock of the Sender guards the following fields.
	knownMarker storage.ETag // ETag of the marker at the last read
	rowsSeen    int          // number of rows at the last read
	isResting   bool         // no event is due, or no event can be sent
}

// run is the worker's goroutine.
func (d *outboxWorker) run() {
	for busy := 0; d.sender.startCtx.Err() == nil; {
		next, err := d.deliverDue()
		switch {
		case errors.Is(err, lease.ErrBusy):
			d.waitForWake(min(minBusyRetry<<min(busy, 10), maxBusyRetry), nil)
			busy++
			continue
		case err != nil && d.sender.startCtx.Err() == nil:
			d.sender.Log.Warn("notify: outbox left for now", "lane", d.outbox.lane, "err", err)
			d.waitForWake(storageRetryDelay+time.Duration(d.sender.Rand()*float64(storageRetryDelay)), nil)
		case err == nil && next.IsZero():
			if d.tryStop() {
				return
			}
		case err == nil:
			d.waitForWake(next.Sub(d.sender.Now()), d.wake)
		}
		busy = 0
	}
}

// tryStop removes the worker, except if it was woken after its last read of the outbox. It reports whether the
// worker has stopped.
func (d *outboxWorker) tryStop() bool {
	d.sender.mu.Lock()
	defer d.sender.mu.Unlock()
	if len(d.wake) > 0 {
		return false
	}
	delete(d.sender.workers, d.outbox)
	d.sender.signalChange()
	return true
}

// signalChange wakes WaitIdle. The caller holds mu.
func (s *Sender) signalChange() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// waitForWake returns when the time is over, when wake receives a value, or when the Sender closes.
func (d *outboxWorker) waitForWake(wait time.Duration, wake <-chan struct{}) {
	d.sender.mu.Lock()
	d.isResting = len(wake) == 0
	d.sender.signalChange()
	d.sender.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-d.sender.startCtx.Done():
	}
	d.sender.mu.Lock()
	d.isResting = false
	d.sender.mu.Unlock()
}

// recordMarker records in the worker the marker and the number of rows that the last read returned.
func (d *outboxWorker) recordMarker(tag storage.ETag, rows int) {
	d.sender.mu.Lock()
	defer d.sender.mu.Unlock()
	d.knownMarker, d.rowsSeen = tag, rows
}

// deliverDue sends the due events under the outbox's lease. It returns the time at which the next event becomes
// due; zero = the outbox is empty, or retention has removed the lane. It returns lease.ErrBusy if another process
// has the lease.
func (d *outboxWorker) deliverDue() (time.Time, error) {
	select {
	case <-d.wake:
	default:
	}
	control, err := d.store.ReadControl(d.sender.ctx, d.outbox.lane)
	if storage.Is(err, storage.NotFound) {
		return time.Time{}, nil // retention has removed this earlier epoch
	}
	if err != nil || outbox.MarkerOf(control) == "" {
		return time.Time{}, err
	}
	l, err := lease.Acquire(d.sender.ctx, lease.Config{Leases: d.sender.Leases, Length: leaseLength,
		Now: d.sender.Now, Log: d.sender.Log}, d.rows.LeaseName())
	if err != nil {
		return time.Time{}, err
	}
	next, err := d.newSession(l.Context(), outbox.MarkerOf(control)).deliverAll()
	releasing, cancel := context.WithTimeout(context.WithoutCancel(d.sender.ctx), releaseTimeout)
	defer cancel()
	if releaseErr := l.Release(releasing); releaseErr != nil {
		d.sender.Log.Warn("notify: lease not released", "lane", d.outbox.lane, "err", releaseErr)
	}
	return next, err
}

func (d *outboxWorker) newSession(ctx context.Context, marker storage.ETag) *outboxSession {
	return &outboxSession{
		outboxWorker: d, ctx: ctx, marker: marker, markerIsFresh: true, mayHaveUnseen: true,
		queues: map[string][]queuedMail{}, inFlightByHost: map[string]int{}, lastServed: map[string]int{},
		inProgress: map[string]bool{}, results: make(chan sendResult, maxPerLane),
	}
}
