package poll

import (
	"errors"
	"fmt"
	"time"

	"weir/internal/weir"
)

// Config configures the periods of a process; see the package documentation.
type Config struct {
	Period time.Duration // time from the start of one process to the start of the next process
	Idle   time.Duration // time between two reads of the lanes
	// assumed average time of an attempt, until the first attempt is measured
	Estimate time.Duration
	// reserve at the end of the period, as a multiple of the average time of an attempt
	Tolerance float64
	Timeout   time.Duration // timeout of an attempt
}

// Check returns an error with a weir.SettingProblem for each value outside of its range. It does
// not check Timeout, which is the value of the setting delivery.timeout: the code that reads the
// settings checks Timeout.
func (c Config) Check() error {
	var problems []error
	must := func(ok bool, path, format string, args ...any) {
		if !ok {
			problems = append(problems, weir.NewSettingProblem(path, format, args...))
		}
	}

	must(c.Period >= time.Second &&
		c.Period <= 24*time.Hour, "period", "is %s and must be 1s to 24h", c.Period)
	must(c.Idle >= 100*time.Millisecond &&
		c.Idle <= time.Hour, "idle", "is %s and must be 100ms to 1h", c.Idle)
	must(c.Estimate > 0 && c.Estimate <= time.Hour,
		"estimate", "is %s and must be over 0s and at most 1h", c.Estimate)
	must(c.Tolerance >= 1 && c.Tolerance <= 1000, "tolerance", "is %g and must be 1 to 1000",
		c.Tolerance)

	return errors.Join(problems...)
}

// Fits returns an error if the period is so short that no attempt could begin.
func (c Config) Fits() error {
	switch {
	case c.Timeout >= c.Period:
		return fmt.Errorf("no attempt could begin: period (%s) must be longer than delivery.timeout (%s)", c.Period,
			c.Timeout)
	case c.reservedAverages(c.Estimate) >= c.Period:
		return fmt.Errorf("no work could begin: period (%s) must be longer than estimate × tolerance (%s)", c.Period,
			c.reservedAverages(c.Estimate))
	}

	return nil
}

func (c Config) reservedAverages(average time.Duration) time.Duration {
	return time.Duration(float64(average) * c.Tolerance)
}

// reservedTime returns the length of the reserve at the end of a period. No attempt begins in the
// reserve.
func (c Config) reservedTime(average time.Duration) time.Duration {
	return max(c.reservedAverages(average), c.Timeout)
}

// NotAfter returns the latest time at which an attempt can begin in the period that begins at
// start.
func (c Config) NotAfter(start time.Time) time.Time { return start.Add(c.Period - c.Timeout) }
