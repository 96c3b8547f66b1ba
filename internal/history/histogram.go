package history

import (
	"math"
	"time"
)

// Durations counts durations in buckets that grow by a fourth root of two, so a quantile
// read from it is right to within a tenth, and those of several instances add up. The key
// is the bucket's number; nil is an empty one, to be read only.
type Durations map[int]int64

// perDoubling is the number of buckets between a duration and twice as much.
const perDoubling = 4

// unit is the end of the first bucket.
const unit = 250 * time.Microsecond

func bucket(d time.Duration) int {
	if d <= unit {
		return 0
	}
	return int(math.Ceil(perDoubling * math.Log2(float64(d)/float64(unit))))
}

// Add counts one duration.
func (h Durations) Add(d time.Duration) { h[bucket(d)]++ }

// plus adds the counts of another.
func (h Durations) plus(other Durations) {
	for b, n := range other {
		h[b] += n
	}
}

// Count is the number of durations.
func (h Durations) Count() int64 {
	var n int64
	for _, c := range h {
		n += c
	}
	return n
}

// mean is about the mean; 0 when there are none.
func (h Durations) mean() time.Duration {
	var sum float64
	for b, n := range h {
		sum += float64(n) * float64(middle(b))
	}
	return time.Duration(sum / float64(max(h.Count(), 1)))
}

// Quantile gives the duration that a share q (0 to 1) of them do not exceed, as the middle
// of its bucket; 0 when there are none.
func (h Durations) Quantile(q float64) time.Duration {
	total := h.Count()
	if total == 0 {
		return 0
	}
	rank, last := int64(math.Ceil(q*float64(total))), 0
	for b := range h {
		last = max(last, b)
	}
	var seen int64
	for b := 0; b < last; b++ {
		if seen += h[b]; seen >= max(rank, 1) {
			return middle(b)
		}
	}
	return middle(last)
}

func middle(b int) time.Duration {
	if b == 0 {
		return unit / 2
	}
	return time.Duration(float64(unit) * math.Exp2((float64(b)-0.5)/perDoubling))
}
