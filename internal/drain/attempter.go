package drain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/limiter"
	"weir/internal/panics"
	"weir/internal/storage"
	"weir/internal/weir"
)

// attemptHost has the methods of a session that the attempter calls.
type attemptHost interface {
	// canSend reports whether a message can be sent now; see session.canSend.
	canSend(ctx context.Context, e *lane.Entry) (bool, error)
	// moveDueUntil waits for a result of e from sent, and returns this result. Meanwhile it
	// continues to move due messages of other keys into their keys' queues.
	moveDueUntil(ctx context.Context, e *lane.Entry, sent <-chan weir.Result) weir.Result
}

// attempter sends one message at a time to the CMS.
type attempter struct {
	laneScope
	drainer    *Drainer
	guard      *crashGuard
	history    *deliveryHistory
	prefetch   *bodyPrefetch
	patience   time.Duration // see Config.Patience
	leastTime  leastTime
	remembered *rememberedIDs
	missing    *missingContracts
	slots      slotQueue
	isTrusted  func() bool // reports whether the lease can be trusted now; see lease.Lease.Trusted
	host       attemptHost
}

// sendMessage makes an attempt, and returns its result. In these cases it sends no request, and the
// result has the reason:
//   - Too many processes in a row crashed while they sent this message; see crashGuard.
//   - Storage does not return the message's body; see judgeUnread.
//   - The message's contract is missing from the settings, and the time to wait for it is over.
//   - A pause has begun, or the session ends.
//   - Other requests took its slots; see Config.Limiter.
//   - Config.NotAfter has passed.
//
// sendMessage returns an error if another read from storage fails, if ctx ends before the request,
// or if the lease cannot be trusted.
func (a *attempter) sendMessage(ctx context.Context, c *candidate) (weir.Result, error) {
	e := c.entry
	if e.Seq() == a.guard.poisonSeq {
		return a.judgePoison(e), nil
	}
	if a.missing.isMissing(e) {
		return a.rejectUnsent(reasonMissingContract), nil
	}

	release, err := a.drainer.memory.reserveUnderWay(ctx, e)
	if err != nil {
		return weir.Result{}, err
	}
	defer release()
	if err := a.prefetch.loadBody(ctx, e); err != nil {
		return a.judgeUnread(ctx, e, err)
	}

	if c.lastPos, err = a.history.readLastPos(ctx, e); err != nil {
		return weir.Result{}, err
	}

	if c.remembered, err = a.remembered.readID(ctx, e); err != nil {
		return weir.Result{}, err
	}

	if err := a.drainer.seats.Acquire(ctx, 1); err != nil {
		return weir.Result{}, context.Cause(ctx)
	}
	defer a.drainer.seats.Release(1)
	attempt, end, err := a.slots.begin(ctx)
	switch {
	case limiter.IsNoSlot(err):
		return a.postpone("other requests took its slots"), nil
	case err != nil:
		return weir.Result{}, err
	}
	defer end()

	if may, err := a.host.canSend(ctx, e); err != nil || !may {
		return a.postpone("it was paused"), err
	}

	if !a.isTrusted() {
		// for example, the lease ran out while the process was stalled
		return weir.Result{}, lease.ErrLost
	}

	if a.drainer.isPastDeadline() {
		return a.postpone("there was no time left for it"), nil
	}

	sent := make(chan weir.Result, 1)
	delivery := weir.Delivery{Message: &e.Message, Fence: a.fence, RememberedID: c.remembered.ID,
		Attempt: e.AttemptCount + 1, Since: waitingSince(e)}
	go func() { sent <- a.sendSafely(attempt, delivery) }()

	return a.host.moveDueUntil(ctx, e, sent), nil
}

// reasonPoison is the reason of a message with which too many processes ended.
var reasonPoison = fmt.Sprintf(
	"processes ended %d times in a row while this message was being delivered, "+
		"and no attempt came to its end; it need not be the cause", cautiousAfter)

// postpone returns the result of an attempt that did not begin. It uses up no turn of the key.
func (a *attempter) postpone(reason string) weir.Result {
	return weir.Result{Outcome: weir.OutcomeNone, Reason: reason, Unsent: true, StartedAt: a.now()}
}

// rejectUnsent returns the result of a message that is rejected because it cannot be sent.
func (a *attempter) rejectUnsent(reason string) weir.Result {
	return weir.Result{Outcome: weir.OutcomeRejected, Reason: reason, Unsent: true,
		StartedAt: a.now()}
}

// sendSafely makes an attempt. It turns a panic into a failed attempt that shows nothing about the
// CMS. A panic is a defect of Weir and no verdict about the message, which is tried again, perhaps
// by a corrected version.
func (a *attempter) sendSafely(ctx context.Context, d weir.Delivery) (result weir.Result) {
	startedAt := a.now()
	err := panics.Catch(func() error {
		result = a.drainer.Sender.Send(ctx, d)
		return nil
	})
	if err != nil {
		a.log.Error("drain: panic in delivery", "message_id", d.Message.Public().String(),
			"err", err)
		result = weir.Result{Outcome: weir.OutcomeRetry,
			Reason:     "internal error while building the request",
			IsOwnFault: true, StartedAt: startedAt}
	}

	return result
}

// waitingSince returns the earliest time at which the next attempt could begin. This is the latest
// of four times: the acceptance, the due time, the last request for a replay, and the end of the
// last attempt.
func waitingSince(e *lane.Entry) time.Time {
	since := e.WaitingSince()
	if n := len(e.Attempts); n > 0 {
		if last := e.Attempts[n-1]; last.At.Add(last.Duration).After(since) {
			since = last.At.Add(last.Duration)
		}
	}
	return since
}

// isPastDeadline reports whether Config.NotAfter has passed. In this case it also stops all new
// work of the Drainer, so that the Drainer hands its lanes over.
func (d *Drainer) isPastDeadline() bool {
	if d.NotAfter.IsZero() || !d.Now().After(d.NotAfter) {
		return false
	}
	d.stopNewWork()
	return true
}

// If storage does not return the body of a message, only the key of this message waits: the lane's
// other messages can have bodies that storage returns. So such a read never ends the session. If
// storage as a whole is away, the commit of the result fails, and this failure ends the session.
//
//   - If the cause is the body (storage.IsObjectFault), the attempt counts. So the message becomes
//     dead after Config.Attempts, and an operator can replay it when storage returns the body
//     again.
//   - Otherwise the attempt does not count, because storage can be the cause. After Config.Patience
//     it counts, because the message must become final even if storage never returns the body.

// unreadBackoff computes the waits after attempts that do not count. Its maximum is short, because
// the end of an outage of storage is not announced.
var unreadBackoff = Backoff{Min: lookRetry, Max: time.Minute}

// judgeUnread returns the result for a message whose body was not read because of err. If ctx has
// ended, it returns the cause as an error.
func (a *attempter) judgeUnread(ctx context.Context, e *lane.Entry,
	err error) (weir.Result, error) {
	if ctx.Err() != nil {
		return weir.Result{}, context.Cause(ctx)
	}

	a.log.Warn("drain: body not read", "message_id", e.Message.Public().String(), "seq", e.Seq(),
		"fence", a.fence, "err", err)
	result := weir.Result{Unsent: true, StartedAt: a.now()}
	switch {
	case storage.Is(err, storage.NotFound):
		return a.rejectUnsent("the message's body is gone from storage"), nil
	case storage.IsObjectFault(err):
		result.Outcome = weir.OutcomeRetry
		result.Reason = "storage cannot return the message's body: " + storage.Describe(err)
	default:
		result.Outcome = weir.OutcomeUnavailable
		result.Reason = "storage does not return the message's body at present: " +
			storage.Describe(err)
		if since := unreadSince(e); !since.IsZero() && a.now().Sub(since) >= a.patience {
			result.Outcome = weir.OutcomeRetry
		}
	}

	return result, nil
}

// unreadSince returns the time of the first attempt since the last request to the CMS, or since the
// last replay, in which storage did not return the message's body. If there was no such attempt, it
// returns the zero time.
func unreadSince(e *lane.Entry) (since time.Time) {
	for i := len(e.Attempts) - 1; i >= 0 && e.Attempts[i].Unsent; i-- {
		if e.Attempts[i].At.Before(e.WaitingSince()) {
			break
		}
		since = e.Attempts[i].At
	}
	return since
}

// countUnread returns the number of attempts in a row in which storage did not return the message's
// body.
func countUnread(e *lane.Entry) (n int) {
	for i := len(e.Attempts) - 1; i >= 0 && e.Attempts[i].Unsent; i-- {
		n++
	}
	return n
}

// holdUnread makes a message wait whose body was not read, by an attempt that does not count.
func (o *outcomeRecorder) holdUnread(c *candidate, ch *lane.Change, result weir.Result) error {
	c.entry.Record(result, o.fence, false)
	ch.Key = c.entry.KeyHash()
	backoff := unreadBackoff
	backoff.Rand = o.backoff.Rand
	return o.scheduleRetry(c, ch, o.now().Add(backoff.pauseDelay(countUnread(c.entry), 0)))
}

const (
	// At most maxPrefetches bodies are prefetched at the same time. Together they have at most
	// maxPrefetchBytes bytes, but the first of them can be larger.
	maxPrefetches    = 4
	maxPrefetchBytes = 4 << 20
	// maxPrefetchTotal bounds the bytes of all prefetched bodies of a process. A process can hold a
	// thousand lanes.
	maxPrefetchTotal = 32 << 20
)

// bodyPrefetch fetches the bodies of messages that will probably be sent next, while another
// message is being sent.
type bodyPrefetch struct {
	store   *lane.Store
	room    *semaphore.Weighted // maxPrefetchTotal bytes, which all lanes of the process share
	running map[*lane.Entry]*bodyFetch
}

type bodyFetch struct {
	loaded lane.Entry    // a copy of the entry, with its body
	weight int64         // bytes of the room that the fetch has
	done   chan struct{} // closed at the end of the fetch
	err    error
}

// newPrefetchRoom returns the room for the prefetched bodies of a process.
func newPrefetchRoom() *semaphore.Weighted { return semaphore.NewWeighted(maxPrefetchTotal) }

// loadBody loads an entry's body. If a prefetch of the body has begun, loadBody waits for its
// result. After a failed prefetch it reads the body itself, because the failure can be old.
func (p *bodyPrefetch) loadBody(ctx context.Context, e *lane.Entry) error {
	f := p.running[e]
	if f == nil {
		return p.store.LoadBody(ctx, e)
	}

	select {
	case <-f.done:
		p.forget(e, f)
		if f.err != nil {
			return p.store.LoadBody(ctx, e)
		}
		e.Message.Body = f.loaded.Message.Body
		return nil

	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// prefetchAll begins to fetch the bodies of messages, up to maxPrefetchBytes, and as long as the
// process has room. The parameter "next" lists the messages; the message that will most likely be
// sent first is its first entry. prefetchAll forgets all earlier fetches of other bodies.
func (p *bodyPrefetch) prefetchAll(ctx context.Context, next []*lane.Entry) {
	bytes := 0
	for i, e := range next {
		if bytes += e.Message.Size; i > 0 && bytes > maxPrefetchBytes {
			next = next[:i]
			break
		}
	}

	for e, f := range p.running {
		if !slices.Contains(next, e) {
			p.forget(e, f)
		}
	}

	for _, e := range next {
		if p.running[e] != nil {
			continue
		}

		weight := min(int64(e.Message.Size), maxPrefetchTotal)
		if !p.room.TryAcquire(weight) {
			return
		}

		p.startFetch(ctx, e, weight)
	}
}

// forget frees the room of a fetch.
func (p *bodyPrefetch) forget(e *lane.Entry, f *bodyFetch) {
	delete(p.running, e)
	p.room.Release(f.weight)
}

// forgetAll is called at the end of a session.
func (p *bodyPrefetch) forgetAll() {
	for e, f := range p.running {
		p.forget(e, f)
	}
}

func (p *bodyPrefetch) startFetch(ctx context.Context, e *lane.Entry, weight int64) {
	f := &bodyFetch{loaded: *e, weight: weight, done: make(chan struct{})}
	if p.running == nil {
		p.running = map[*lane.Entry]*bodyFetch{}
	}

	p.running[e] = f
	go func() {
		defer close(f.done)
		f.err = panics.Catch(func() error { return p.store.LoadBody(ctx, &f.loaded) })
	}()
}
