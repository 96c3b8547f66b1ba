package notify

import "time"

// retryWaits are the waits after the tries of an event:
//
//	try     1    2     3     4       5       6    and each further one
//	wait    5 s  30 s  2 min 10 min  30 min  1 h  1 h
//
// Each wait is prolonged by a random time of up to a fifth of the wait. A longer Retry-After replaces the wait, but
// counts for at most maxRetryAfter. If a try fails and the first try was giveUpAfter ago or earlier, the event is
// removed. By then, the event has had about 70 tries.
var retryWaits = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute,
	30 * time.Minute, time.Hour}

const (
	// If an event's first try was giveUpAfter ago or earlier, a failed try removes the event.
	giveUpAfter = 72 * time.Hour
	// maxRetryAfter bounds the Retry-After of a receiver.
	maxRetryAfter = 24 * time.Hour
)

// retryDelay returns the wait after the given number of tries. The argument "draw" is a random number from 0 to 1.
func retryDelay(tries int, retryAfter time.Duration, draw float64) time.Duration {
	wait := retryWaits[min(max(tries, 1), len(retryWaits))-1]
	wait += time.Duration(draw * float64(wait) / 5)
	return max(wait, min(retryAfter, maxRetryAfter))
}
