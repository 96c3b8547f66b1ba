package poll

import (
	"fmt"
	"time"
)

// Summary describes the work of one process in one period. A scheduler starts such a process at the
// start of each period.
type Summary struct {
	Runs     int           // how often the process read all lanes
	Messages int           // messages that this process delivered
	Counts   Counts        // attempts of this process, by outcome
	Average  time.Duration // average time of an attempt; Config.Estimate if Known is false
	Known    bool
	Worked   time.Duration // time from the period's start to the end of the work
	Idle     float64       // share of Worked without an attempt in flight, 0 to 1
}

func (r *Run) newSummary(runs int) Summary {
	s := Summary{Runs: runs, Counts: r.Meter.Counts(), Worked: r.Now().Sub(r.Start), Idle: 1}
	s.Messages = s.Counts.Delivered
	if s.Average, s.Known = r.Meter.Average(); !s.Known {
		s.Average = r.Estimate
	}

	if s.Worked > 0 {
		s.Idle = min(max(1-float64(r.Meter.Busy())/float64(s.Worked), 0), 1)
	}

	return s
}

// String returns the summary as one line for a person.
func (s Summary) String() string {
	average := s.Average.Round(100 * time.Microsecond).String()
	if !s.Known {
		average += " (estimate)"
	}

	line := fmt.Sprintf("%d runs, %d messages, average %s, idle %.0f %%, %s", s.Runs, s.Messages,
		average, 100*s.Idle, s.Worked.Round(100*time.Millisecond))

	for _, part := range []struct {
		n    int
		what string
	}{{s.Counts.Rejected, "rejected"}, {s.Counts.Retried, "failed attempts"}, {s.Counts.Unavailable,
		"times no CMS"}, {s.Counts.Cut, "cut off"}} {
		if part.n > 0 {
			line += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}

	return line
}
