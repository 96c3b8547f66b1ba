package notify

import "time"

// What a receiver did not take is sent again after
//
//	try     1    2     3     4       5       6    and each further one
//	wait    5 s  30 s  2 min 10 min  30 min  1 h  1 h
//
// with up to a fifth on top of each, until three days have passed since the first try: about
// 76 tries. A longer Retry-After goes before it.
var waits = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour}

const (
	// giveUpAfter is how long after its first try an event is sent again.
	giveUpAfter = 72 * time.Hour
	// retryAfterMax bounds what a receiver may ask for.
	retryAfterMax = 24 * time.Hour
)

// retryDelay is the wait after a number of tries; draw is from 0 to 1.
func retryDelay(tries int, retryAfter time.Duration, draw float64) time.Duration {
	wait := waits[min(max(tries, 1), len(waits))-1]
	wait += time.Duration(draw * float64(wait) / 5)
	return max(wait, min(retryAfter, retryAfterMax))
}
