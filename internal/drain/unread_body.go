package drain

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// If storage does not return the body of a message, only the key of this message waits: the lane's other messages can
// have bodies that storage returns. So such a read never ends the session. If storage as a whole is away, the commit of
// the result fails, and this failure ends the session.
//
//   - If the cause is the body (storage.IsObjectFault), the attempt counts. So the message becomes dead after
//     Config.Attempts, and an operator can replay it when storage returns the body again.
//   - Otherwise the attempt does not count, because storage can be the cause. After Config.Patience it counts, because
//     the message must become final even if storage never returns the body.

// unreadBackoff computes the waits after attempts that do not count. Its maximum is short, because the end of an outage
// of storage is not announced.
var unreadBackoff = Backoff{Min: lookRetry, Max: time.Minute}

// judgeUnread returns the result for a message whose body was not read because of err. If ctx has ended, it returns the
// cause as an error.
func (a *attempter) judgeUnread(ctx context.Context, e *lane.Entry, err error) (weir.Result, error) {
	if ctx.Err() != nil {
		return weir.Result{}, context.Cause(ctx)
	}
	a.log.Warn("drain: body not read", "message_id", e.Message.Public().String(), "seq", e.Seq(), "fence", a.fence,
		"err", err)
	result := weir.Result{Unsent: true, StartedAt: a.now()}
	switch {
	case storage.Is(err, storage.NotFound):
		return a.rejectUnsent("the message's body is gone from storage"), nil
	case storage.IsObjectFault(err):
		result.Outcome = weir.OutcomeRetry
		result.Reason = "storage cannot return the message's body: " + storage.Describe(err)
	default:
		result.Outcome = weir.OutcomeUnavailable
		result.Reason = "storage does not return the message's body at present: " + storage.Describe(err)
		if since := unreadSince(e); !since.IsZero() && a.now().Sub(since) >= a.patience {
			result.Outcome = weir.OutcomeRetry
		}
	}
	return result, nil
}

// unreadSince returns the time of the first attempt since the last request to the CMS, or since the last replay, in
// which storage did not return the message's body. If there was no such attempt, it returns the zero time.
func unreadSince(e *lane.Entry) (since time.Time) {
	for i := len(e.Attempts) - 1; i >= 0 && e.Attempts[i].Unsent; i-- {
		if e.Attempts[i].At.Before(e.WaitingSince()) {
			break
		}
		since = e.Attempts[i].At
	}
	return since
}

// countUnread returns the number of attempts in a row in which storage did not return the message's body.
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
