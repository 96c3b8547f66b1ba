package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// result is one row of the table.
type result struct {
	Name     string   `json:"name"`
	Unit     string   `json:"unit"` // of value and baseline
	Value    float64  `json:"value"`
	Baseline *float64 `json:"baseline"` // the yardstick, measured in the same run; null = there is none
	Ratio    *float64 `json:"ratio"`    // docs/performance.md defines it for each row
	Target   *float64 `json:"target"`   // null = the row only reports
	Rule     string   `json:"rule"`     // how the row is compared with the target: "ratio >= 0.97"
	OK       *bool    `json:"ok"`       // the target is reached; null = the row has none
	Note     string   `json:"note"`
	Delay    float64  `json:"delay"`           // ms by which storage answered later; 0 = Azurite itself
	Error    string   `json:"error,omitempty"` // of the scenario; the figures are then not valid
}

// newRow begins a row that only reports.
func newRow(name, unit string, value float64) result {
	return result{Name: name, Unit: unit, Value: value}
}

// withBaseline sets the yardstick, and the ratio value / baseline.
func (r result) withBaseline(baseline float64) result {
	r.Baseline, r.Ratio = new(baseline), new(r.Value/baseline)
	return r
}

// withLeast sets a yardstick that is the lower bound of the value. The ratio is baseline / value.
func (r result) withLeast(limit float64) result {
	r.Baseline, r.Ratio = new(limit), new(limit/r.Value)
	return r
}

func (r result) requireRatio(ratio float64) result {
	return r.setVerdict(*r.Ratio >= ratio, ratio, "ratio >= %g", ratio)
}

func (r result) limitRatio(ratio float64) result {
	return r.setVerdict(*r.Ratio <= ratio, ratio, "ratio <= %g", ratio)
}

func (r result) limitValue(limit float64) result {
	return r.setVerdict(r.Value <= limit, limit, "value <= %g", limit)
}

// limitDistance sets the target that the value exceeds the baseline by at most distance.
func (r result) limitDistance(distance float64) result {
	return r.setVerdict(r.Value-*r.Baseline <= distance, distance, "value - baseline <= %g", distance)
}

func (r result) setVerdict(ok bool, target float64, rule string, args ...any) result {
	r.OK, r.Target, r.Rule = new(ok), new(target), fmt.Sprintf(rule, args...)
	return r
}

func (r result) withNote(format string, args ...any) result {
	r.Note = fmt.Sprintf(format, args...)
	return r
}

// requireValue sets the target that the value is at least least.
func (r result) requireValue(least float64) result {
	return r.setVerdict(r.Value >= least, least, "value >= %g", least)
}

// withDelay records the delay of storage in the row.
func (r result) withDelay(d time.Duration) result {
	if d > 0 {
		r.Name, r.Delay = fmt.Sprintf("%s, storage at %s", r.Name, d), milliseconds(d)
	}
	return r
}

// percentile returns the smallest sample that a share of at least p (0 to 1) of all samples does not exceed. This is
// the percentile by nearest rank: it is always one of the samples. Without samples it is NaN.
func percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func median(samples []float64) float64 { return percentile(samples, 0.5) }

func mean(samples []float64) float64 {
	sum := 0.0
	for _, s := range samples {
		sum += s
	}
	return sum / float64(len(samples))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// describeSpread returns the percentiles of latencies in ms, as the text of a note.
func describeSpread(samples []float64) string {
	return fmt.Sprintf("p50 %.2f, p90 %.2f, p99 %.2f ms of %d", median(samples), percentile(samples, 0.9),
		percentile(samples, 0.99), len(samples))
}
