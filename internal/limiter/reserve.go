package limiter

import (
	"slices"
	"time"

	"weir/internal/clock"
	"weir/internal/panics"
	"weir/internal/storage"
)

const (
	// transactionsPerSecond bounds the transactions of a process while it sends. The first
	// transactions of a process, or after a pause, may come together.
	transactionsPerSecond = 2
	firstTransactions     = 6
	// lookEvery is the time between two reads of the row while requests wait: another process may
	// have paused the slots, or slowed them.
	lookEvery = time.Second
	// failedPause is the shortest pause after a failed transaction; the longest is twice as long.
	failedPause = time.Second
	// After its n-th refusal in a row a process waits up to refusedPause * 2^n: processes that wait
	// for the same time would refuse each other's writes again and again.
	refusedPause = 25 * time.Millisecond
	maxRefusals  = 5
	// The first slot of a reservation is the time of two writes and shortestLead after its plan, at
	// most longestLead: earlier slots would be over before the process has them.
	shortestLead = 10 * time.Millisecond
	longestLead  = time.Second
	// leastSetBack is the time from which on a clock that was set back is corrected; less of it
	// only makes the next slots later.
	leastSetBack = time.Second
)

// budget is a token bucket of transactions. The zero value is full.
type budget struct {
	spent  float64 // transactions that are not paid back yet
	asOf   time.Time
	lookAt time.Time // next read that is not needed for a reservation
}

// waitFor returns how long n transactions have to wait, and pays for them if they need not wait.
func (b *budget) waitFor(n int, now time.Time) time.Duration {
	if !b.asOf.IsZero() {
		b.spent = max(0, b.spent-now.Sub(b.asOf).Seconds()*transactionsPerSecond)
	}

	b.asOf = now
	if over := b.spent + float64(n) - firstTransactions; over > 0 {
		return max(time.Millisecond, time.Duration(over/transactionsPerSecond*float64(time.Second)))
	}

	b.spent += float64(n)

	return 0
}

// startReserving starts the goroutine that reserves slots, or wakes it. The caller holds mu.
func (l *Limiter) startReserving() {
	if l.isReserving {
		select {
		case l.wake <- struct{}{}:
		default:
		}
		return
	}

	if l.ctx.Err() != nil || !l.isBusy() {
		return
	}

	l.isReserving = true
	l.done.Go(func() { panics.Repeat(l.ctx, l.cfg.Log, "limiter: reservations", l.reserveWhileBusy) })
}

// isBusy reports whether requests wait, slots are left, or the row has to learn of an answer. The
// caller holds mu.
func (l *Limiter) isBusy() bool {
	waiting, _ := l.countWaiting()
	return waiting > 0 || len(l.slots) > 0 || l.news.isUrgent()
}

// reserveWhileBusy reserves slots until no request needs one.
func (l *Limiter) reserveWhileBusy() {
	for {
		wait, isBusy := l.planTransaction()
		switch {
		case !isBusy || l.ctx.Err() != nil:
			return
		case wait == 0:
			l.makeReservation()
		default:
			l.sleepOrWake(wait)
		}
	}
}

// sleepOrWake waits until d has passed, the demand has changed, or the Limiter is closed.
func (l *Limiter) sleepOrWake(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-l.wake:
	case <-l.ctx.Done():
	}
}

// planTransaction returns how long the next reservation has to wait. If the process needs none any
// more, isBusy is false, and the goroutine must end.
func (l *Limiter) planTransaction() (wait time.Duration, isBusy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.cfg.Now()
	l.dropOver(now)
	if !l.isBusy() || l.ctx.Err() != nil {
		l.isReserving = false
		return 0, false
	}

	waiting, _ := l.countWaiting()
	switch {
	case l.missingSlots(now) > 0 || l.news.isUrgent():
	case waiting == 0: // the last slot passes
		last := l.slots[len(l.slots)-1]
		return max(lateness, l.clock.toLocal(last).Add(2*lateness).Sub(now)), true
	case l.budget.lookAt.After(now):
		return l.budget.lookAt.Sub(now), true
	}

	transactions := 2
	if l.own.etag != "" {
		transactions = 1
	}

	// The budgets of processes that were refused together end at the same time.
	wait = l.budget.waitFor(transactions, now)

	return wait + l.drawJitter(wait), true
}

// missingSlots returns the number of slots to reserve: those of two seconds at most, or those of the
// longest attempt. The caller holds mu.
func (l *Limiter) missingSlots(now time.Time) int {
	waiting, largest := l.countWaiting()
	left := len(l.slots) - l.promised
	most := max(1, l.appetite.most, largest)

	return max(0, min(l.appetite.missing(waiting, left, now), most-left))
}

// makeReservation reads the row, and reserves slots. After a failure it pauses.
func (l *Limiter) makeReservation() {
	err := l.reserve()
	isRefused := storage.Is(err, storage.Precondition) || storage.Is(err, storage.Conflict)
	isFailure := err != nil && !isRefused

	l.mu.Lock()
	hadFailed := l.hasFailed
	l.hasFailed = isFailure
	if err != nil {
		l.own = state{}
	}

	refusals := 0
	if isRefused {
		refusals = min(l.refusals+1, maxRefusals)
	}
	l.refusals = refusals
	l.budget.lookAt = l.cfg.Now().Add(lookEvery)
	l.mu.Unlock()

	if isFailure && !hadFailed && l.ctx.Err() == nil {
		l.cfg.Log.Warn("limiter: no slots reserved", "err", err)
	}

	switch {
	case isFailure:
		clock.Sleep(l.ctx, failedPause+l.drawJitter(failedPause))
	case isRefused: // another process has written the row in between
		clock.Sleep(l.ctx, l.drawJitter(refusedPause<<refusals))
	}
}

func (l *Limiter) drawJitter(d time.Duration) time.Duration {
	return time.Duration(l.cfg.Rand() * float64(d))
}

// reserve reserves the slots that are missing. If the process does not know the clock of storage
// well enough, it samples the clock first.
func (l *Limiter) reserve() error {
	if err := l.refreshClock(); err != nil {
		return err
	}

	s, err := l.currentRow()
	if err != nil {
		return err
	}

	slots, taken, mustWrite := l.planSlots(&s)
	if !mustWrite {
		return nil
	}

	etag, err := l.writeRow(s)
	s.etag = etag
	l.recordReservation(s, slots, taken, err)

	return err
}

// setLead sets the lead after a write. The caller holds mu.
func (l *Limiter) setLead(took time.Duration) { l.lead = min(shortestLead+2*took, longestLead) }

// currentRow returns the row as this process has written it, if no other process seems to write
// it, and reads it otherwise. If the row has changed, the write is refused.
func (l *Limiter) currentRow() (state, error) {
	l.mu.Lock()
	own := l.own
	if l.missingSlots(l.cfg.Now()) == 0 {
		own = state{} // the read is to learn the pace
	}
	l.mu.Unlock()

	if own.etag != "" {
		return own, nil
	}

	return l.readRow()
}

// errOvertaken is the error of a sample if another process has written the row before this process
// read back its own write.
var errOvertaken = &storage.Error{Op: "limiter: clock", Kind: storage.Precondition, Index: -1}

// refreshClock samples the clock of storage, if the last sample is old: it writes a row that few
// processes share, and reads back when storage wrote it.
func (l *Limiter) refreshClock() error {
	l.mu.Lock()
	isFresh := l.clock.isFresh(l.cfg.Now())
	if !isFresh {
		l.budget.spent += 2 // planTransaction has paid for the others
	}
	l.mu.Unlock()

	if isFresh {
		return nil
	}

	began := l.cfg.Now()
	etags, err := l.cfg.Table.Transact(l.ctx, partition,
		[]storage.Op{{Kind: storage.Upsert, Key: l.clockKey, KeepsTime: true}})
	ended := l.cfg.Now()
	if err != nil {
		return err
	}

	row, err := l.cfg.Table.Get(l.ctx, partition, l.clockKey)
	switch {
	case err != nil:
		return err
	case row.ETag != etags[0]:
		return errOvertaken
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.setBack = max(l.setBack, l.clock.addSample(row.WrittenAt, began, ended))
	if l.lead == 0 {
		l.setLead(ended.Sub(began))
	}

	return nil
}

// recordReservation takes over the reserved slots. If the write failed, or its result is unknown,
// no request may have the slots.
func (l *Limiter) recordReservation(s state, slots []time.Time, taken news, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.news.addOlder(taken)
		return
	}

	l.adoptPace(s.pace)
	if l.isAlone {
		l.own = s
	}

	l.lastETag = s.etag
	if len(slots) > 0 {
		l.addSlots(slots)
	}
}

// readRow reads the row, and takes over its pace.
func (l *Limiter) readRow() (state, error) {
	row, err := l.cfg.Table.Get(l.ctx, partition, l.cfg.CMS)
	if storage.Is(err, storage.NotFound) {
		return state{pace: pace{share: 1}}, nil
	}
	if err != nil {
		return state{}, err
	}

	s := decodeState(row)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isAlone = s.etag == l.lastETag
	l.adoptPace(s.pace)

	return s, nil
}

// adoptPace takes over the pace of the row, and keeps a pause of which the row does not know yet.
// The caller holds mu.
func (l *Limiter) adoptPace(stored pace) {
	l.pace = stored
	if local := l.news.pausedUntil; !local.IsZero() {
		l.pace.pausedUntil = latest(l.pace.pausedUntil, l.clock.toStorage(local))
	}
}

// planSlots decides which slots to reserve, and changes the row accordingly. It takes over the news
// of answers. It returns false if there is nothing to write.
func (l *Limiter) planSlots(s *state) (slots []time.Time, taken news, mustWrite bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	local := l.cfg.Now()
	now := l.clock.toStorage(local)
	l.repairSetBack(s, now)

	n := l.missingSlots(local)
	if n == 0 && !l.news.isUrgent() {
		return nil, news{}, false
	}

	taken, l.news = l.news, news{}
	switch {
	case taken.isOverloaded:
		s.slowDown(now)
	case taken.hasSuccess:
		s.recover(now)
	}

	if !taken.pausedUntil.IsZero() {
		s.pausedUntil = latest(s.pausedUntil, l.clock.toStorage(taken.pausedUntil))
	}

	s.spacing = l.cfg.Rate.spacing(s.share)
	s.firstFree = latest(s.firstFree, s.pausedUntil, now.Add(l.lead))
	for range n {
		slots = append(slots, s.firstFree)
		s.firstFree = s.firstFree.Add(s.spacing)
	}

	if n > 0 {
		l.appetite.adjust()
	}

	return slots, taken, true
}

// repairSetBack corrects the row, and drops the slots of this process, if the clock of storage was
// set back. Without it, nothing would be sent until the clock has reached the old times. The row is
// corrected once, by the first process that notices.
func (l *Limiter) repairSetBack(s *state, now time.Time) {
	back := max(l.setBack, s.writtenAt.Sub(now))
	l.setBack, s.writtenAt = 0, time.Time{} // the row is about to be written anew
	if back < leastSetBack {
		return
	}

	l.slots = nil
	if latest(s.firstFree, s.pausedUntil).Sub(now) > back/2 {
		s.shiftBack(back)
	}
}

// latest returns the latest of some times.
func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}

// writeRow writes the row, on condition that it is as it was read, and returns its new ETag.
func (l *Limiter) writeRow(s state) (storage.ETag, error) {
	op := storage.Op{Kind: storage.Replace, Key: l.cfg.CMS, IfMatch: s.etag, Values: s.encode(),
		KeepsTime: true}
	if s.etag == "" {
		op.Kind = storage.Insert
	}

	began := l.cfg.Now()
	etags, err := l.cfg.Table.Transact(l.ctx, partition, []storage.Op{op})
	if err != nil {
		return "", err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.setLead(l.cfg.Now().Sub(began))

	return etags[0], nil
}
