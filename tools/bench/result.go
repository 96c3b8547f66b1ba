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
	Unit     string   `json:"unit"` // unit of value and baseline; empty = they are numbers
	Value    float64  `json:"value"`
	Baseline *float64 `json:"baseline"` // the yardstick, measured in the same run; null = there is none
	Ratio    *float64 `json:"ratio"`    // value / baseline (after withLeast: baseline / value); null = no baseline
	Target   *float64 `json:"target"`   // null = the row only reports
	Rule     string   `json:"rule"`     // condition of the target, such as "ratio >= 0.97"; empty = no target
	OK       *bool    `json:"ok"`       // whether the target is reached; null = no target
	Note     string   `json:"note"`
	Delay    float64  `json:"delay"`           // median delay of storage's answers, in ms; 0 = Azurite itself
	Error    string   `json:"error,omitempty"` // error of the scenario; the row then has no figures
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

// withLeast sets a yardstick that is a lower bound of the value, and the ratio baseline / value.
func (r result) withLeast(limit float64) result {
	r.Baseline, r.Ratio = new(limit), new(limit/r.Value)
	return r
}

// requireRatio sets a target: the ratio must be at least the given one.
func (r result) requireRatio(ratio float64) result {
	return r.setVerdict(*r.Ratio >= ratio, ratio, "ratio >= %g", ratio)
}

// limitRatio sets a target: the ratio must be at most the given one.
func (r result) limitRatio(ratio float64) result {
	return r.setVerdict(*r.Ratio <= ratio, ratio, "ratio <= %g", ratio)
}

// limitValue sets a target: the value must be at most limit.
func (r result) limitValue(limit float64) result {
	return r.setVerdict(r.Value <= limit, limit, "value <= %g", limit)
}

// limitDistance sets a target: the value may exceed the baseline by at most distance.
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

// requireValue sets a target: the value must be at least the given one.
func (r result) requireValue(least float64) result {
	return r.setVerdict(r.Value >= least, least, "value >= %g", least)
}

// withDelay records the delay of storage in the row and in its name. A delay of 0 changes nothing.
func (r result) withDelay(d time.Duration) result {
	if d > 0 {
		r.Name, r.Delay = fmt.Sprintf("%s, storage at %s", r.Name, d), milliseconds(d)
	}
	return r
}

// percentile returns the percentile p (0 to 1) by nearest rank: the smallest sample such that at least a share p of all
// samples is not larger. Without samples it returns NaN.
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

// describeSpread returns the text of a note with the percentiles of samples, which are in ms, and their number.
func describeSpread(samples []float64) string {
	return fmt.Sprintf("p50 %.2f, p90 %.2f, p99 %.2f ms of %d", median(samples), percentile(samples, 0.9),
		percentile(samples, 0.99), len(samples))
}
