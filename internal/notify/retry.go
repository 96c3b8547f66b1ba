package notify

import "time"

// retryWaits are the waits after the tries of an event:
//
//	try     1    2     3     4       5       6    and each further one
//	wait    5 s  30 s  2 min 10 min  30 min  1 h  1 h
//
// A random time of up to a fifth is added to each wait. A longer Retry-After takes precedence over the wait. When a try
// fails three days or more after the event's first try, the event is removed. By then, about 70 tries were made.
var retryWaits = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute,
	30 * time.Minute, time.Hour}

const (
	// A failed try removes the event if the first try was giveUpAfter ago or earlier.
	giveUpAfter = 72 * time.Hour
	// maxRetryAfter bounds the Retry-After of a receiver.
	maxRetryAfter = 24 * time.Hour
)

// retryDelay returns the wait after a number of tries. "draw" is a random number from 0 to 1.
func retryDelay(tries int, retryAfter time.Duration, draw float64) time.Duration {
	wait := retryWaits[min(max(tries, 1), len(retryWaits))-1]
	wait += time.Duration(draw * float64(wait) / 5)
	return max(wait, min(retryAfter, maxRetryAfter))
}
