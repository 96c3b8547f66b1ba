package limiter

import "time"

const (
	// clockDrift bounds how fast the clock of a process and that of storage move apart.
	clockDrift = 200e-6
	// sampleEvery is the age at which the process samples the clock of storage again.
	sampleEvery = 15 * time.Second
)

// storageClock estimates the clock of storage. The zero value knows nothing about it.
type storageClock struct {
	// bounds of the time by which storage is ahead of the process
	low, high time.Duration
	sampledAt time.Time // by the clock of the process; zero = never
}

// isFresh reports whether the estimate needs no sample now.
func (c *storageClock) isFresh(now time.Time) bool {
	return !c.sampledAt.IsZero() && now.Sub(c.sampledAt) < sampleEvery
}

// addSample adds what one write shows: storage wrote the row at writtenAt, and the process began
// the call at began and had its answer at ended. Of two samples the more exact one stays, until its
// age makes it the less exact one. If two samples contradict each other, a clock was set, and the
// new sample stays. addSample returns the time by which the clock of storage was set back.
func (c *storageClock) addSample(writtenAt, began, ended time.Time) (setBack time.Duration) {
	low, high := writtenAt.Sub(ended), writtenAt.Sub(began)
	if !c.sampledAt.IsZero() {
		wider := time.Duration(float64(ended.Sub(c.sampledAt)) * clockDrift)
		low = max(low, c.low-wider)
		high = min(high, c.high+wider)
	}

	if low > high {
		before := c.offset()
		low, high = writtenAt.Sub(ended), writtenAt.Sub(began)
		setBack = max(0, before-low)
	}

	c.low, c.high, c.sampledAt = low, high, ended

	return setBack
}

// offset returns the time by which storage is ahead of the process.
func (c *storageClock) offset() time.Duration { return c.low + (c.high-c.low)/2 }

func (c *storageClock) toStorage(local time.Time) time.Time { return local.Add(c.offset()) }

func (c *storageClock) toLocal(stored time.Time) time.Time { return stored.Add(-c.offset()) }
