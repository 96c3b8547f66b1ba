package notify

import (
	"time"

	"weir/internal/lane/outbox"
)

// retryWaits are the waits after the tries of an event:
//
//	try     1    2     3     4       5       6    and each further one
//	wait    5 s  30 s  2 min 10 min  30 min  1 h  1 h
//
// Each wait is prolonged by a random time of up to a fifth of the wait. A longer Retry-After
// replaces the wait, but counts for at most maxRetryAfter. If a try fails and the first try was
// giveUpAfter ago or earlier, the event is removed. By then, the event has had about 70 tries if
// its receiver answered each time.
var retryWaits = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute,
	10 * time.Minute, 30 * time.Minute, time.Hour}

const (
	// If an event's first try was giveUpAfter ago or earlier, a failed try removes the event.
	giveUpAfter = 72 * time.Hour
	// minBehind is the time for which a line must have been behind before it gives events up
	// without a request. It is so long that a receiver which is neither slow nor away takes all
	// events first, even if no process has sent events for days.
	minBehind = time.Hour
	// maxRetryAfter bounds the Retry-After of a receiver.
	maxRetryAfter = 24 * time.Hour
)

// retryDelay returns the wait after the given number of tries. The argument "draw" is a random
// number from 0 to 1.
func retryDelay(tries int, retryAfter time.Duration, draw float64) time.Duration {
	wait := retryWaits[min(max(tries, 1), len(retryWaits))-1]
	wait += time.Duration(draw * float64(wait) / 5)
	return max(wait, min(retryAfter, maxRetryAfter))
}

// isOverdue reports whether a line gives up an event for which it has no room: the event's first
// try, or the event itself if it was never tried, was giveUpAfter ago or earlier. So the rows of a
// receiver that takes fewer events than there are do not grow without bound.
func isOverdue(m outbox.Event, l *line, now time.Time) bool {
	since := m.FirstTriedAt
	if since.IsZero() {
		since = m.At
	}
	return l.isBehind() && now.Sub(l.behindSince) >= minBehind && now.Sub(since) >= giveUpAfter
}
