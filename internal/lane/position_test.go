package lane_test

import (
	"errors"
	"testing"

	"weir/internal/lane"
	"weir/internal/weir"
)

// A position of another epoch is outdated, whether that epoch is an earlier or a later one: a
// handler of the old epoch can get a position from a handler of the new one.
func TestStore_CheckPosition(t *testing.T) {
	t.Parallel()
	s := &lane.Store{Epoch: 3}
	for epoch, isOutdated := range map[int]bool{2: true, 3: false, 4: true} {
		err := s.CheckPosition("search", epoch)
		var e *weir.Error
		if !isOutdated && err != nil ||
			isOutdated && (!errors.As(err, &e) || e.Kind != weir.Malformed ||
				len(e.Problems) != 1 || e.Problems[0].Path != "continue") {
			t.Errorf("epoch %d: got %v, want an error about continue: %t", epoch, err, isOutdated)
		}
	}
}
