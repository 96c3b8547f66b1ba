package drain

import "time"

// maxDelay is the longest wait of a message or a lane, even if the CMS asks for a longer one. Only a wait that is
// set in Backoff.Steps can be longer.
const maxDelay = time.Hour

// Backoff computes the waits after failures in a row. With a Min of 1s and a Max of 5m the longest wait after n
// failures is:
//
//	n        1   2   3   4   5    6    7     8     9     10
//	longest  1s  2s  4s  8s  16s  32s  1m4s  2m8s  4m16s 5m
//
// If Steps is set, it replaces Min and Max: the n-th step is the longest wait after n failures, and the last step
// repeats. The wait of a message then has no jitter, because the operator chose the time. Pauses of a lane still have
// jitter.
type Backoff struct {
	Min, Max time.Duration
	Steps    []time.Duration
	Rand     func() float64 // returns 0 to 1; New sets it
}

// longestDelay returns the longest wait after n failures in a row. n is at least 1.
func (b Backoff) longestDelay(n int) time.Duration {
	if len(b.Steps) > 0 {
		return b.Steps[min(n, len(b.Steps))-1]
	}
	d := b.Min
	for range n - 1 {
		if d *= 2; d >= b.Max {
			return b.Max
		}
	}
	return min(d, b.Max)
}

// retryDelay returns the wait of a message after n failures. Without Steps the wait is random, from 0 to longestDelay,
// so that messages that failed together are not retried together. The CMS can ask for a longer wait, up to maxDelay.
func (b Backoff) retryDelay(n int, asked time.Duration) time.Duration {
	if len(b.Steps) > 0 {
		return max(b.longestDelay(n), min(asked, maxDelay))
	}
	return limitDelay(time.Duration(b.Rand()*float64(b.longestDelay(n))), asked)
}

// pauseDelay returns the length of a lane's n-th pause in a row: a random time from half of longestDelay to
// longestDelay. If asked is longer, pauseDelay returns asked. The result is at most maxDelay.
func (b Backoff) pauseDelay(n int, asked time.Duration) time.Duration {
	c := float64(b.longestDelay(n))
	return limitDelay(time.Duration(c/2+b.Rand()*c/2), asked)
}

// isFarAhead reports whether the stored time of a retry is further in the future than any backoff allows. The holder
// that wrote such a time had a wrong clock.
func (b Backoff) isFarAhead(at, now time.Time) bool {
	longest := maxDelay
	for _, step := range b.Steps {
		longest = max(longest, step)
	}
	return at.After(now.Add(longest + 2*maxSkew))
}

// limitDelay returns the longer of two waits, at most maxDelay.
func limitDelay(d, asked time.Duration) time.Duration {
	return min(max(d, asked), maxDelay)
}
