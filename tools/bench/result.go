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
	Unit     string   `json:"unit"` // unit of value and baseline; empty = no unit
	Value    float64  `json:"value"`
	Baseline *float64 `json:"baseline"` // value for comparison, from the same run; null = none
	// value / baseline (after withLeast: baseline / value); null = no baseline
	Ratio  *float64 `json:"ratio"`
	Target *float64 `json:"target"` // null = no target
	// condition of the target, such as "ratio >= 0.97"; empty = no target
	Rule string `json:"rule"`
	OK   *bool  `json:"ok"` // whether the target is reached; null = no target
	Note string `json:"note"`
	// median delay of storage's answers, in ms; 0 = Azurite without a delay
	Delay float64 `json:"delay"`
	// error of the failed scenario; such a row has no figures
	Error string `json:"error,omitempty"`
}

// newRow returns a row without baseline and target.
func newRow(name, unit string, value float64) result {
	return result{Name: name, Unit: unit, Value: value}
}

// withBaseline sets the baseline, and the ratio value / baseline.
func (r result) withBaseline(baseline float64) result {
	r.Baseline, r.Ratio = new(baseline), new(r.Value/baseline)
	return r
}

// withLeast sets a baseline that is a lower bound of the value, and the ratio baseline / value.
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

// limitDistance sets a target: the value must not exceed the baseline by more than distance.
func (r result) limitDistance(distance float64) result {
	return r.setVerdict(r.Value-*r.Baseline <= distance, distance,
		"value - baseline <= %g", distance)
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

// withDelay adds the delay of storage to the row and to the row's name. A delay of 0 changes
// nothing.
func (r result) withDelay(d time.Duration) result {
	if d > 0 {
		r.Name, r.Delay = fmt.Sprintf("%s, storage at %s", r.Name, d), milliseconds(d)
	}
	return r
}

// percentile returns the percentile p (0 to 1) by the nearest-rank method, or NaN without samples.
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

// describeSpread returns the percentiles and the number of samples, as text for a note. The samples
// are in ms.
func describeSpread(samples []float64) string {
	return fmt.Sprintf("p50 %.2f, p90 %.2f, p99 %.2f ms of %d", median(samples),
		percentile(samples, 0.9), percentile(samples, 0.99), len(samples))
}
