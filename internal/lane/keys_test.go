package lane_test

import (
	"fmt"
	"math"
	"testing"

	"weir/internal/lane"
)

func TestOrderPos_IsPaddedWithZeros(t *testing.T) {
	t.Parallel()
	for _, seq := range []int64{0, 1, 9, 10, 1234567890, math.MaxInt64, -1} {
		if got, want := lane.OrderPos(seq), fmt.Sprintf("%019d", seq); got != want {
			t.Errorf("OrderPos(%d) = %q; want %q", seq, got, want)
		}
	}
}
