package notify

import (
	"context"
	"errors"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/outbox"
	"weir/internal/lease"
	"weir/internal/panics"
	"weir/internal/storage"
)

const (
	// If another process has the outbox's lease, the worker tries to get the lease again after
	// minBusyRetry. After each further failure the wait doubles, up to maxBusyRetry.
	minBusyRetry = 2 * time.Second
	maxBusyRetry = 30 * time.Second
	// After an error of storage, the worker waits for a random time between storageRetryDelay and
	// 2*storageRetryDelay.
	storageRetryDelay = 5 * time.Second
)

// outboxWorker sends the events of one outbox in this process. It starts when the process learns of
// an event in the outbox, and stops when the outbox is empty. It has the outbox's lease only during
// an outboxSession.
type outboxWorker struct {
	sender *Sender
	outbox outboxID
	store  *lane.Store // store of the outbox's epoch
	rows   outbox.Outbox
	wake   chan struct{}
	lines  *lines // of the last session, if the next one can go on from its positions

	// Sender.mu guards the following fields.
	knownMarker storage.ETag // ETag of the marker at the last read
	rowsSeen    int          // number of rows at the last read
	isResting   bool         // no event is due, or no event can be sent
}

// run sends events until the outbox is empty or the Sender closes.
func (d *outboxWorker) run() {
	for busy := 0; d.sender.startCtx.Err() == nil; {
		var next time.Time
		err := panics.Catch(func() (err error) {
			next, err = d.deliverDue()
			return err
		})

		switch {
		case errors.Is(err, lease.ErrBusy):
			d.waitForWake(min(minBusyRetry<<min(busy, 10), maxBusyRetry), nil)
			busy++
			continue

		case err != nil && d.sender.startCtx.Err() == nil:
			d.sender.Log.Warn("notify: outbox left for now", "lane", d.outbox.lane, "err", err)
			d.waitForWake(storageRetryDelay+
				time.Duration(d.sender.Rand()*float64(storageRetryDelay)), nil)

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

// tryStop removes the worker from the Sender, except if the worker was woken after its last read of
// the outbox. It reports whether it removed the worker.
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

// signalChange wakes the callers of WaitIdle. It must be called with s.mu locked.
func (s *Sender) signalChange() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// waitForWake returns after the wait, or earlier if wake receives a value or the Sender closes.
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

// recordMarker records the marker's ETag and the number of rows from the last read of the outbox.
func (d *outboxWorker) recordMarker(tag storage.ETag, rows int) {
	d.sender.mu.Lock()
	defer d.sender.mu.Unlock()
	d.knownMarker, d.rowsSeen = tag, rows
}

// deliverDue sends the due events under the outbox's lease. It returns the time at which the next
// event becomes due. If the outbox is empty or retention has removed the lane, this time is zero.
// If another process has the lease, deliverDue returns lease.ErrBusy.
func (d *outboxWorker) deliverDue() (time.Time, error) {
	select {
	case <-d.wake:
	default:
	}

	control, err := d.store.ReadControl(d.sender.ctx, d.outbox.lane)
	if storage.Is(err, storage.NotFound) {
		return time.Time{}, nil // retention has removed the lanes of this earlier epoch
	}
	if err != nil || outbox.MarkerOf(control) == "" {
		return time.Time{}, err
	}

	cfg := lease.Config{Leases: d.sender.Leases, Length: leaseLength, Now: d.sender.Now,
		Log: d.sender.Log}
	var next time.Time
	err = lease.Do(d.sender.ctx, cfg, d.rows.LeaseName(), func(ctx context.Context) (err error) {
		next, err = d.newSession(ctx, outbox.MarkerOf(control)).deliverAll()
		return err
	})

	return next, err
}

func (d *outboxWorker) newSession(ctx context.Context, marker storage.ETag) *outboxSession {
	lines := d.lines
	d.lines = newLines() // unless the session ends in order
	for _, l := range lines.byName {
		l.lastServed = 0
	}

	return &outboxSession{
		outboxWorker: d, ctx: ctx, marker: marker, markerIsFresh: true, mayHaveUnseen: true,
		lines:          lines,
		inFlightByHost: map[string]int{}, inFlightByLine: map[string]int{},
		inProgress: map[string]bool{}, results: make(chan sendResult, maxPerLane),
	}
}
