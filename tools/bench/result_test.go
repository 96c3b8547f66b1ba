package main

import (
	"math"
	"testing"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}

	for _, c := range []struct {
		samples []float64
		p, want float64
	}{
		{hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100}, {hundred, 0, 1},
		{[]float64{7}, 0.5, 7}, {[]float64{7}, 0.99, 7}, {[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{1, 2}, 0.5, 1},
	} {
		if got := percentile(c.samples, c.p); got != c.want {
			t.Errorf("percentile %g of %d samples is %g, want %g", c.p, len(c.samples), got, c.want)
		}
	}

	if !math.IsNaN(percentile(nil, 0.5)) {
		t.Errorf("percentile 0.5 of no samples is %g, want NaN", percentile(nil, 0.5))
	}

	if hundred[0] != 100 {
		t.Errorf("the first sample is %g, want 100: percentile must not reorder them", hundred[0])
	}
}

func TestResult(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		r     result
		ratio float64
		ok    bool
		rule  string
	}{
		"Share": {newRow("a", "s", 20).withLeast(19.6).requireRatio(0.97), 0.98, true,
			"ratio >= 0.97"},
		"ShareMissed": {newRow("a", "s", 20).withLeast(10).requireRatio(0.97), 0.5, false,
			"ratio >= 0.97"},
		"RatioMissed": {newRow("a", "ms", 3).withBaseline(2).limitRatio(1.3), 1.5, false,
			"ratio <= 1.3"},
		"RatioExact": {newRow("a", "ms", 2.6).withBaseline(2).limitRatio(1.3), 1.3, true,
			"ratio <= 1.3"},
		"Value": {newRow("a", "tx", 0.4).withBaseline(20).limitValue(0.5), 0.02, true,
			"value <= 0.5"},
		"Distance": {newRow("a", "ms", 7).withBaseline(2).limitDistance(5), 3.5, true,
			"value - baseline <= 5"},
		"DistanceMissed": {newRow("a", "ms", 8).withBaseline(2).limitDistance(5), 4, false,
			"value - baseline <= 5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if math.Abs(*c.r.Ratio-c.ratio) > 1e-9 || *c.r.OK != c.ok || c.r.Rule != c.rule {
				t.Errorf("ratio %g, ok %t, rule %q, want %g, %t, %q", *c.r.Ratio, *c.r.OK,
					c.r.Rule, c.ratio, c.ok, c.rule)
			}
		})
	}

	if r := newRow("a", "ms", 1); r.OK != nil || r.Target != nil || r.Baseline != nil {
		t.Errorf("a row without target: got %+v, want no OK, Target and Baseline", r)
	}
}
