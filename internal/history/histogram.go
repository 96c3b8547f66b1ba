package history

import (
	"math"
	"time"
)

// Durations is a histogram: it maps the number of a bucket to the number of durations in the
// bucket. The upper bound of a bucket is the upper bound of the previous bucket, multiplied by the
// fourth root of two. So a quantile above 250 µs is right to within a tenth. All instances have the
// same buckets, so their counts can be added. A nil Durations is empty and can only be read.
type Durations map[int]int64

// bucketsPerDoubling is the number of buckets between a duration and twice that duration.
const bucketsPerDoubling = 4

// bucketUnit is the upper bound of the first bucket.
const bucketUnit = 250 * time.Microsecond

func bucketOf(d time.Duration) int {
	if d <= bucketUnit {
		return 0
	}
	return int(math.Ceil(bucketsPerDoubling * math.Log2(float64(d)/float64(bucketUnit))))
}

// Add counts one duration.
func (h Durations) Add(d time.Duration) { h[bucketOf(d)]++ }

func (h Durations) addAll(other Durations) {
	for b, n := range other {
		h[b] += n
	}
}

// Count returns the number of durations.
func (h Durations) Count() int64 {
	var n int64
	for _, c := range h {
		n += c
	}
	return n
}

// meanOf returns the approximate mean; 0 if there are no durations.
func (h Durations) meanOf() time.Duration {
	var sum float64
	for b, n := range h {
		sum += float64(n) * float64(bucketMiddle(b))
	}
	return time.Duration(sum / float64(max(h.Count(), 1)))
}

// Quantile returns the approximate q-quantile; q is from 0 to 1. The result is the middle of a
// bucket, or 0 if there are no durations.
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
			return bucketMiddle(b)
		}
	}

	return bucketMiddle(last)
}

func bucketMiddle(b int) time.Duration {
	if b == 0 {
		return bucketUnit / 2
	}
	return time.Duration(float64(bucketUnit) * math.Exp2((float64(b)-0.5)/bucketsPerDoubling))
}
