package drain

import (
	"context"
	"fmt"
	"time"

	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/panics"
	"weir/internal/weir"
)

// attemptHost has the methods of a session that the attempter calls.
type attemptHost interface {
	// canSend reports whether a message can be sent now; see session.canSend.
	canSend(ctx context.Context, e *lane.Entry) (bool, error)
	// moveDueUntil waits for a result of e from sent, and returns this result. Meanwhile it continues to move due
	// messages of other keys into their keys' queues.
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
	isTrusted  func() bool // reports whether the lease can be trusted now; see lease.Lease.Trusted
	host       attemptHost
}

// sendMessage makes an attempt, and returns its result. In these cases it sends no request, and the result has the
// reason:
//   - Too many processes in a row crashed while they sent this message; see crashGuard.
//   - Storage does not return the message's body; see judgeUnread.
//   - The message's contract is missing from the settings, and the time to wait for it is over.
//   - A pause has begun, or the session ends.
//   - Config.NotAfter has passed.
//
// sendMessage returns an error if another read from storage fails, if ctx ends before the request, or if the lease
// cannot be trusted.
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
	if err := a.drainer.acquireSlot(ctx); err != nil {
		return weir.Result{}, err
	}
	defer a.drainer.releaseSlot()
	if may, err := a.host.canSend(ctx, e); err != nil || !may {
		return weir.Result{Outcome: weir.OutcomeNone, Reason: "it was paused", StartedAt: a.now()}, err
	}
	if !a.isTrusted() {
		return weir.Result{}, lease.ErrLost // for example, the lease ran out while the process was stalled
	}
	if a.drainer.isPastDeadline() {
		return weir.Result{Outcome: weir.OutcomeNone, Reason: "there was no time left for it", StartedAt: a.now()}, nil
	}
	sent := make(chan weir.Result, 1)
	delivery := weir.Delivery{Message: &e.Message, Fence: a.fence, RememberedID: c.remembered.ID,
		Attempt: e.AttemptCount + 1, Since: waitingSince(e)}
	go func() { sent <- a.sendSafely(ctx, delivery) }()
	return a.host.moveDueUntil(ctx, e, sent), nil
}

// reasonPoison is the reason of a message with which too many processes ended.
var reasonPoison = fmt.Sprintf("processes ended %d times in a row while this message was being delivered, "+
	"and no attempt came to its end; it need not be the cause", cautiousAfter)

// rejectUnsent returns the result of a message that is rejected because it cannot be sent.
func (a *attempter) rejectUnsent(reason string) weir.Result {
	return weir.Result{Outcome: weir.OutcomeRejected, Reason: reason, Unsent: true, StartedAt: a.now()}
}

// sendSafely makes an attempt. It turns a panic into a failed attempt that shows nothing about the CMS. A panic is a
// defect of Weir and no verdict about the message, which is tried again, perhaps by a corrected version.
func (a *attempter) sendSafely(ctx context.Context, d weir.Delivery) (result weir.Result) {
	startedAt := a.now()
	err := panics.Catch(func() error {
		result = a.drainer.Sender.Send(ctx, d)
		return nil
	})
	if err != nil {
		a.log.Error("drain: panic in delivery", "message_id", d.Message.Public().String(), "err", err)
		result = weir.Result{Outcome: weir.OutcomeRetry, Reason: "internal error while building the request",
			IsOwnFault: true, StartedAt: startedAt}
	}
	return result
}

// waitingSince returns the earliest time at which the next attempt could begin. This is the latest of four times: the
// acceptance, the due time, the last request for a replay, and the end of the last attempt.
func waitingSince(e *lane.Entry) time.Time {
	since := e.WaitingSince()
	if n := len(e.Attempts); n > 0 {
		if last := e.Attempts[n-1]; last.At.Add(last.Duration).After(since) {
			since = last.At.Add(last.Duration)
		}
	}
	return since
}

// acquireSlot waits until fewer than Config.AtOnce attempts of this process are under way, and then takes a slot for
// one more attempt. If ctx ends first, acquireSlot returns the cause as an error.
func (d *Drainer) acquireSlot(ctx context.Context) error {
	if d.slots == nil {
		return nil
	}
	select {
	case d.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *Drainer) releaseSlot() {
	if d.slots != nil {
		<-d.slots
	}
}

// isPastDeadline reports whether Config.NotAfter has passed. In this case it also stops all new work of the Drainer, so
// that the Drainer hands its lanes over.
func (d *Drainer) isPastDeadline() bool {
	if d.NotAfter.IsZero() || !d.Now().After(d.NotAfter) {
		return false
	}
	d.stopNewWork()
	return true
}
