package drain

import (
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// A message does not die of time alone. Its attempts make it dead without a verdict of the CMS only
// if both are used up: the number of attempts (Config.Attempts), and the least time between the
// beginnings of the first and the last of them (Config.RetryFor). Otherwise a CMS whose database
// restarts would end a message of a quiet lane within seconds: backoffs are short at first, and too
// few keys fail to show that the CMS is the cause.
//
// The first attempt's time is in the message's row, so it outlasts restarts and takeovers. A replay
// begins anew.
//
//	no verdict                                    needs attempts   needs the least time
//	outcome retry: 500, no answer, success unmet  yes              yes
//	refused or away for longer than patience      yes              yes
//	storage does not return the body              yes              yes
//	panic while sending                           yes              yes
//	processes ended while they sent it            -                yes (attempter.judgePoison)
//	storage has lost the body                     -                -
//	contract missing for longer than patience     -                -
//
// In the last two cases no further attempt could be made.

// leastTime has the least time for which a message is tried.
type leastTime struct {
	retryFor func(*lane.Entry) time.Duration // see Config.RetryFor
}

// endsAt returns the time before which failed attempts do not make a message dead. Its present
// attempt began at startedAt.
func (l leastTime) endsAt(e *lane.Entry, startedAt time.Time) time.Time {
	first := e.FirstFailedAt()
	if first.IsZero() || first.After(startedAt) { // the clock of the holder that wrote it was ahead
		first = startedAt
	}
	return first.Add(l.retryFor(e))
}

// isOver reports whether the message was tried for the least time when its present attempt began.
func (l leastTime) isOver(e *lane.Entry, startedAt time.Time) bool {
	return !l.endsAt(e, startedAt).After(startedAt)
}

// hasTriedEnough reports whether a failed attempt that counts makes its message dead.
func (o *outcomeRecorder) hasTriedEnough(e *lane.Entry, result weir.Result) bool {
	return e.AttemptsSinceReplay()+1 >= o.attempts && o.leastTime.isOver(e, result.StartedAt)
}

// showRetryUntil records, for operators, the time until which only a rejection makes the message
// dead.
func (o *outcomeRecorder) showRetryUntil(e *lane.Entry, result weir.Result) {
	if o.leastTime.retryFor(e) == 0 {
		e.SetRetryUntil(time.Time{})
		return
	}
	e.SetRetryUntil(storedTime(o.leastTime.endsAt(e, result.StartedAt)))
}

// judgePoison returns the result for a message with which processes ended: tail named it during
// cautiousAfter crashes in a row. The message need not be the cause, because the host may have
// ended the processes. So it waits until the least time is over, and is then sent again. It is dead
// if processes end with it again.
func (a *attempter) judgePoison(e *lane.Entry) weir.Result {
	result := a.rejectUnsent(reasonPoison)
	if ends := a.leastTime.endsAt(e, result.StartedAt); ends.After(result.StartedAt) {
		result.Outcome, result.RetryAfter = weir.OutcomeRetry, ends.Sub(result.StartedAt)
		a.guard.pardon(e.Seq())
	}
	return result
}
