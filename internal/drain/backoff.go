package drain

import "time"

// maxDelay is the longest wait of a message or a lane, even if the CMS asks for more. Only a step of Backoff.Steps may
// be longer.
const maxDelay = time.Hour

// Backoff computes the wait after the n-th failure in a row. With a Min of 1s and a Max of 5m the longest waits are:
//
//	n        1   2   3   4   5    6    7     8     9     10
//	longest  1s  2s  4s  8s  16s  32s  1m4s  2m8s  4m16s 5m
//
// Steps, if set, replaces Min and Max. It lists the longest waits, and its last step repeats. A message waits exactly
// for its step, without jitter, because the operator has chosen it. Pauses of a lane have jitter all the same.
type Backoff struct {
	Min, Max time.Duration
	Steps    []time.Duration
	Rand     func() float64 // 0 to 1; set by New
}

// longestDelay returns the longest wait after the n-th failure, n from 1.
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

// retryDelay draws the wait of a message. Without Steps it has full jitter, so that messages that failed together are
// not retried together. If the CMS asks for a longer wait, retryDelay returns that, up to maxDelay.
func (b Backoff) retryDelay(n int, asked time.Duration) time.Duration {
	if len(b.Steps) > 0 {
		return max(b.longestDelay(n), min(asked, maxDelay))
	}
	return limitDelay(time.Duration(b.Rand()*float64(b.longestDelay(n))), asked)
}

// pauseDelay draws the pause of a lane, up to maxDelay. It is at least half of longestDelay, because the CMS needs
// rest.
func (b Backoff) pauseDelay(n int, asked time.Duration) time.Duration {
	c := float64(b.longestDelay(n))
	return limitDelay(time.Duration(c/2+b.Rand()*c/2), asked)
}

// isFarAhead reports whether the time of a retry is further ahead than the settings and the difference of clocks allow.
// If so, the clock of the holder that wrote the time counts as wrong.
func (b Backoff) isFarAhead(at, now time.Time) bool {
	longest := maxDelay
	for _, step := range b.Steps {
		longest = max(longest, step)
	}
	return at.After(now.Add(longest + 2*maxSkew))
}

// limitDelay returns the longer of two waits, up to maxDelay.
func limitDelay(d, asked time.Duration) time.Duration {
	return min(max(d, asked), maxDelay)
}
