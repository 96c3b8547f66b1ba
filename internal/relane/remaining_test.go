package relane

import (
	"testing"
	"time"

	"weir/internal/lane/epochend"
)

func TestDescribeRemaining(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, rests := range map[string]map[int]epochend.Remaining{
		"Waiting for 1 lane with 1 message.": {0: {Waiting: 1}, 1: {}},
		"Waiting for 2 lanes with 5 messages; nothing is sent for another 10s, because the CMS is unavailable. " +
			"`weir lanes --undo` undoes the change.": {0: {Waiting: 1},
			1: {Waiting: 4, Until: now.Add(10 * time.Second), Reason: "the CMS is unavailable"}},
	} {
		if got := describeRemaining(rests, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
