package delay

import (
	"math"
	"time"
)

type requestFate struct {
	delay time.Duration // delay of the answer
	busy  bool          // the answer is 503 ServerBusy
}

// drawFate returns the delay and the refusal of request n. The result depends only on c and n.
func (c Config) drawFate(n uint64) requestFate {
	f := requestFate{busy: uniformNumber(c.Seed, 2*n) < c.BusyShare}
	if c.Median > 0 {
		f.delay = logNormal(c.Median, c.Sigma, uniformNumber(c.Seed, 2*n+1))
	}
	return f
}

// logNormal returns quantile u of a log-normal distribution. u must be above 0 and below 1.
func logNormal(median time.Duration, sigma, u float64) time.Duration {
	z := math.Sqrt2 * math.Erfinv(2*u-1)
	return time.Duration(float64(median) * math.Exp(sigma*z))
}

// uniformNumber returns number n of a sequence of random numbers above 0 and below 1. It hashes
// seed and n (SplitMix64), because a generator with a state would need a lock that all requests
// share.
func uniformNumber(seed, n uint64) float64 {
	x := mixBits(seed) + (n+1)*0x9e3779b97f4a7c15
	return (float64(mixBits(x)>>11) + 0.5) / (1 << 53)
}

func mixBits(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
