package drain

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/weir"
)

const (
	// carefulAfter is the number of crashes in a row from which the lane runs carefully,
	// and the number a message must have stood in trying at to go dead.
	carefulAfter = 3
	// carefulLength is how many messages go well before careful running ends.
	carefulLength = 32
	// closeTimeout bounds the last flush and the release, which outlive the lease's context.
	closeTimeout = 5 * time.Second
)

// run is one holder's time with a lane, from taking the fence to giving it back. Its
// methods are for one goroutine; only the committer works beside it.
type run struct {
	*Drainer
	open      context.Context // of this tenure
	endTenure func()
	claimedAt time.Time // since when this run has seen that the lane is claimed; zero = it is not
	lane      int
	wake      <-chan struct{}
	log       *slog.Logger

	trusted func() bool // the lease may be relied on at this moment

	committer   *committer
	fence       int64
	window      window
	blocks      blocks
	latest      map[string]lane.LatestVersion // by LatestKey, as far as known
	preloads    map[*lane.Entry]*preload
	gate        *gate
	logNext     bool                 // whose turn it is: the log's or the held ones'
	fromEnd     bool                 // and, while attempts fail, from which end of the log
	deferred    map[string]time.Time // when blocks that wait for the next round were due; see allProbed
	agenda      agenda
	releases    releases
	accepted    acceptances
	news        chan struct{} // a read, a send or a commit beside the run has ended
	sending     string        // the hash of the key of which a request is under way
	looking     looking
	pauses      pauses
	watched     *watched // keys; shared with the tender
	watchedFrom int64    // see lane.Tail
	former      string   // the nonce of the holder before this one
	unused      []string // blobs of bodies that were edited anew
	unwanted    unwanted // of the page of wishes that is being granted

	placed time.Time // see lane.Tail
	taken  int64     // see lane.Tail
	sent   int64     // nothing from this place in the log on was sent by this run

	touched     int64 // head.touched as last seen
	touchedSeen int64 // up to which wishes were granted
	sealed      bool  // the lane is to run empty: what is scheduled stays so

	crashed   bool  // the holder before this one did
	careful   int   // messages still to be run carefully
	trying    int64 // as last written to tail
	condemned int64 // the message that stood in trying at too many crashes
	loaded    bool  // blocks are known, so a position can be written
}

// hold takes the fence and drains until nothing can be sent any more, under the lease's
// context: when trust ends, so does everything that may write.
func (t *tender) hold(l *lease.Lease, seen lane.Control, asked time.Time, of tenure) error {
	ctx, cancel := context.WithCancelCause(l.Context())
	defer cancel(nil)
	d := t.d
	r := &run{Drainer: d, open: of.open, endTenure: of.end, lane: t.number, wake: t.wake, news: make(chan struct{}, 1), gate: t.gate, trusted: l.Trusted, log: d.Log.With("lane", t.number)}
	writer, err := r.take(ctx, seen.Tail, seen.HasUntried(d.Now()))
	if err != nil {
		return err
	}
	d.callForInvocation(ctx, t.number)
	if r.former == t.nonce {
		r.watched = t.watched
	}
	t.watched = nil
	// The last flush outlives ctx, so the committer has a context of its own.
	commits, stopCommits := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCommits()
	r.committer = startCommitter(commits, writer, d.Now, func(err error) { cancel(err) }, t.wrote)
	tail := writer.Tail()
	err = r.load(ctx, tail, t.offers)
	r.notice(seen, asked)
	if err == nil {
		t.watched, t.nonce = r.watched, tail.Nonce
		err = r.drain(ctx)
	}
	err = errors.Join(err, r.close(ctx, stopCommits))
	t.gate.leave(writer.Tail())
	return err
}

// wrote passes on what a commit has brought about.
func (t *tender) wrote(ch *lane.Change) {
	t.d.finals.tell(t.number, ch.FinalSeqs())
	if ch.HasEvents() && t.d.Store.Notifier != nil {
		t.d.Store.Notifier.WakeOutbox(t.number)
	}
}

// take raises the fence. A tail that is open was left by a holder that crashed: it is counted,
// and what it may have sent is given time to settle. untried ends a pause for refused messages.
func (r *run) take(ctx context.Context, seen lane.Tail, untried bool) (*lane.Writer, error) {
	return r.Store.RaiseFence(ctx, r.lane, rand.Text(), seen, func(t *lane.Tail) {
		if t.IsOpen {
			t.Crashes++
			t.NextAllowedAt, t.SentBelow = r.Now().Add(r.pace.interval), 0 // its last attempts may not be in tail
			r.crashed = true
			t.SettleUntil = r.Now().Add(r.Settle + maxSkew)
			if t.InFlightSeq != 0 {
				t.InFlightCrashes++
			}
		}
		if untried && t.ProbedBelow > 0 {
			t.PausedUntil = time.Time{}
		}
		if t.HistoryFence == 0 {
			t.HistoryFence = t.Fence
		}
		t.IsOpen, t.Holder, r.former = true, r.Name, t.Nonce
	})
}

// load prepares what the holder keeps in memory.
func (r *run) load(ctx context.Context, t lane.Tail, offers *offers) error {
	r.fence, r.watchedFrom = t.Fence, t.HistoryFence
	r.gate.adopt(t, r.Now())
	r.fromEnd = r.gate.uneven > 0 // the last holder began in front
	if r.crashed {
		r.gate.unanswered(r.Now())
	}
	r.window = window{store: r.Store, lane: r.lane, offers: offers, nextRead: t.Cursor, agenda: &r.agenda}
	r.agenda.next, r.placed, r.taken, r.touched, r.touchedSeen = t.NextDueAt, t.LastReleasedAt, t.SentBelow, t.RequestsSeen, t.RequestsSeen
	r.trying = t.InFlightSeq
	if t.Crashes >= carefulAfter {
		r.careful = carefulLength
		r.log.Warn("drain: running carefully after crashes", "fence", t.Fence)
	}
	if t.InFlightCrashes >= carefulAfter {
		r.condemned = t.InFlightSeq
	}
	r.blocks, r.latest, r.deferred = blocks{}, map[string]lane.LatestVersion{}, map[string]time.Time{}
	if r.Store.Lanes == 1 {
		r.pace.adopt(limitMoment(t.NextAllowedAt, r.Now().Add(r.pace.interval)))
	}
	var held []lane.KeyBlock
	if !t.NextDueAt.IsZero() { // else nothing is held
		var err error
		if held, err = r.Store.ReadBlocks(ctx, r.lane); err != nil {
			return err
		}
	}
	for _, b := range held {
		if isFarAhead(b.NextAt, r.Now()) {
			b.NextAt = r.Now()
		}
		r.blocks[b.ID] = &b
	}
	if r.watched == nil {
		if err := r.loadWatched(ctx, t); err != nil {
			return err
		}
	}
	r.loaded = true
	return nil
}

// drain is the loop: choose, deliver, settle, until idle, paused or cut off.
func (r *run) drain(ctx context.Context) error {
	for ctx.Err() == nil && r.open.Err() == nil {
		if err := r.serve(ctx); err != nil {
			return err
		}
		if !r.agenda.known && r.ripens() {
			// A message that falls due may go in front of any other, and has to be read first.
			r.pass(ctx, lookEvery)
			continue
		}
		now := r.Now()
		if wait := r.opensAt(now).Sub(now); wait > 0 {
			if wait > lingerMax {
				return nil
			}
			r.pass(ctx, wait)
			continue
		}
		if wait := r.pace.wait(r.Now()); wait > 0 {
			r.pass(ctx, wait)
			continue
		}
		c, err := r.choose(ctx)
		if err != nil {
			return err
		}
		if c != nil && !r.pace.take(r.Now()) {
			continue
		}
		if c != nil {
			if err := r.attempt(ctx, c); err != nil {
				return err
			}
			continue
		}
		if r.opensAt(r.Now()).After(r.Now()) {
			continue // every key had its turn
		}
		if n := r.committer.load(); n > 0 {
			// Keys may be closed, and what is idle is committed at once.
			if err := r.awaitCommit(ctx, n); err != nil {
				return err
			}
			continue
		}
		if more, err := r.linger(ctx); err != nil || !more {
			return err
		}
	}
	return context.Cause(ctx)
}

// awaitCommit waits until fewer than n changes are uncommitted, a message falls due, or there is
// news.
func (r *run) awaitCommit(ctx context.Context, n int) error {
	progress, err := r.committer.flushDown(n)
	if progress == nil {
		return err
	}
	moment, stop := r.startClock()
	defer stop()
	select {
	case <-progress:
	case <-r.news:
	case <-moment:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// awaitPage waits for a read of the log that is under way, until a message falls due, or there is
// news. It returns false if no read is under way.
func (r *run) awaitPage(ctx context.Context) (bool, error) {
	if r.window.reading == nil {
		return false, nil
	}
	moment, stop := r.startClock()
	defer stop()
	select {
	case p := <-r.window.reading:
		return true, r.window.absorb(p)
	case <-r.news:
	case <-moment:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	return true, r.advance(ctx)
}

// startClock returns a channel that gets a value at the next moment at which the clock alone has work
// for this holder, if that is still to come.
func (r *run) startClock() (moment <-chan time.Time, stop func()) {
	return r.startTimer(r.nextStir())
}

// startTimer returns a channel that gets a value at a moment, if that is still to come.
func (r *run) startTimer(at time.Time) (moment <-chan time.Time, stop func()) {
	if wait := at.Sub(r.Now()); !at.IsZero() && wait > 0 {
		timer := time.NewTimer(wait)
		return timer.C, func() { timer.Stop() }
	}
	return nil, func() {}
}

// wakeRun wakes the run, if it waits. Safe for concurrent use.
func (r *run) wakeRun() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// serve does what does not wait for the CMS: wishes, and what falls due.
func (r *run) serve(ctx context.Context) error {
	r.lookAround(ctx, lookEvery)
	if err := r.grantWishes(ctx); err != nil {
		return err
	}
	return r.advance(ctx)
}

// pass waits while nothing may be sent, until a release is to begin or there is news.
func (r *run) pass(ctx context.Context, wait time.Duration) {
	r.committer.flush()
	if at := r.nextRead(); !at.IsZero() {
		wait = min(wait, at.Sub(r.Now()))
	}
	r.sleepOrDone(ctx, wait, nil)
}

const (
	lingerMin  = 2 * time.Second
	lingerMax  = 3 * time.Second
	lingerLook = 500 * time.Millisecond
)

// linger waits a while for more: another instance may append, and cannot wake us. It
// says whether there is something to do.
func (r *run) linger(ctx context.Context) (bool, error) {
	until := r.Now().Add(lingerMin + r.jitter(lingerMax-lingerMin))
	if r.sealed {
		until = r.Now() // nothing more is filed
	}
	for r.Now().Before(until) || r.dueSoon() {
		if err := r.ripenHeld(ctx); err != nil {
			return false, err
		}
		if found := r.lookAround(ctx, lingerLook); found {
			return true, nil
		}
		known := r.releases.known
		if err := r.advance(ctx); err != nil {
			return false, err
		}
		if r.releases.known != known {
			return true, nil // a message may wait for it
		}
		step := lingerLook
		if due := r.nextStir(); !due.IsZero() {
			step = min(step, due.Sub(r.Now()))
		}
		if woken := step > 0 && r.sleepOrWake(ctx, step); woken {
			r.window.woken()
			return true, nil
		}
		if ctx.Err() != nil || r.open.Err() != nil {
			return false, context.Cause(ctx)
		}
		if due := r.nextStir(); !due.IsZero() && !due.After(r.Now()) {
			return true, nil
		}
	}
	return false, nil
}

// dueSoon says that something is due so soon that to leave the lane for it does not pay.
func (r *run) dueSoon() bool {
	due := r.nextDue()
	return !due.IsZero() && due.Sub(r.Now()) <= lane.DueLead
}

// sleepOrWake waits for d, news, the end of ctx or of the drainer, or a wake, when it says true.
// A wake that is there already is used up.
func (r *run) sleepOrWake(ctx context.Context, d time.Duration) bool {
	select {
	case <-r.wake:
		return true
	default:
	}
	return r.sleepOrDone(ctx, d, r.wake)
}

func (r *run) sleepOrDone(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-wake:
		return true
	case <-r.news:
	case <-timer.C:
	case <-r.open.Done():
	case <-ctx.Done():
	}
	return false
}

// restOrDone waits for d, or the end of ctx or of the drainer, whatever news there is: the failure
// of a read is news, too, and would let the next read begin at once, and so on without a pause.
func (r *run) restOrDone(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.open.Done():
	case <-ctx.Done():
	}
}

// close hands the lane over in order: everything decided is committed, open is cleared.
// It runs on a context of its own, for the lease's may have ended.
func (r *run) close(ctx context.Context, stopCommits context.CancelFunc) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	r.committer.add(r.handover(), true)
	err := r.committer.close(limited)
	stopCommits()
	<-r.committer.done
	return err
}

// handover is the last change: tail as the next holder should find it.
func (r *run) handover() *lane.Change {
	ch := &lane.Change{}
	if r.loaded {
		r.position(ch)
	}
	ch.UpdateTail(func(t *lane.Tail) {
		t.IsOpen, t.Crashes, t.InFlightSeq, t.InFlightCrashes = false, 0, 0, 0
	})
	return ch
}

// position writes into a change how far delivery has come and when it goes on.
func (r *run) position(ch *lane.Change) {
	cursor, due, placed, taken, seen := r.window.cursor(), r.nextDue(), r.placed, r.taken, r.touchedSeen
	g := *r.gate
	next := time.Time{}
	if r.Store.Lanes == 1 {
		next = r.pace.upTo()
	}
	ch.UpdateTail(func(t *lane.Tail) {
		t.Cursor, t.NextDueAt, t.NextAllowedAt, t.RequestsSeen, t.LastReleasedAt, t.SentBelow = cursor, due, next, seen, placed, taken
		g.write(t)
	})
}

// final stages of an outcome.
func finalStage(o weir.Outcome) weir.Stage {
	if o == weir.OutcomeDelivered {
		return weir.Delivered
	}
	return weir.Dead
}
