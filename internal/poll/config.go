package poll

import (
	"errors"
	"fmt"
	"time"
)

// Config says how long to work and how often to look.
type Config struct {
	Period    time.Duration // from one start to the next
	Idle      time.Duration // between two looks at the lanes
	Estimate  time.Duration // the average time of an attempt, until it is known
	Tolerance float64       // how many averages are kept free before the end
	Timeout   time.Duration // of an attempt
}

// Check gives every problem of the values, each by itself.
func (c Config) Check() error {
	var problems []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	must(c.Period >= time.Second && c.Period <= 24*time.Hour, "period is %s and must be 1s to 24h", c.Period)
	must(c.Idle >= 100*time.Millisecond && c.Idle <= time.Hour, "idle is %s and must be 100ms to 1h", c.Idle)
	must(c.Estimate > 0 && c.Estimate <= time.Hour, "estimate is %s and must be over 0s and at most 1h", c.Estimate)
	must(c.Tolerance >= 1 && c.Tolerance <= 1000, "tolerance is %g and must be 1 to 1000", c.Tolerance)
	return errors.Join(problems...)
}

// Fits says whether there is room for work in a period at all.
func (c Config) Fits() error {
	switch {
	case c.Timeout >= c.Period:
		return fmt.Errorf("no attempt could begin: period (%s) must be longer than delivery.timeout (%s)", c.Period, c.Timeout)
	case c.averages(c.Estimate) >= c.Period:
		return fmt.Errorf("no work could begin: period (%s) must be longer than estimate × tolerance (%s)", c.Period, c.averages(c.Estimate))
	}
	return nil
}

// averages is the time of as many attempts as the tolerance says.
func (c Config) averages(average time.Duration) time.Duration {
	return time.Duration(float64(average) * c.Tolerance)
}

// reserve is the time before the period's end in which nothing is begun.
func (c Config) reserve(average time.Duration) time.Duration {
	return max(c.averages(average), c.Timeout)
}

// NotAfter is the last moment at which an attempt may begin in a period.
func (c Config) NotAfter(start time.Time) time.Time { return start.Add(c.Period - c.Timeout) }
