package lane

import (
	"testing"
	"time"
)

// Two released messages that wait before the same message of the log go in the order of their
// release, although the retry of the earlier one comes later. Otherwise a newer content would be
// overwritten by an older one.
func TestKeyBlock_GoesBefore(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 31, 8, 0, 0, 0, time.UTC)
	earlier := &KeyBlock{LogWaitsFrom: 7, ReleasedAt: at, NextAt: at.Add(time.Minute)}
	for name, later := range map[string]*KeyBlock{
		"LaterRelease":  {LogWaitsFrom: 7, ReleasedAt: at.Add(1), NextAt: at},
		"ParkedMessage": {LogWaitsFrom: 7, IsParked: true, NextAt: at},
		"LaterMessage":  {LogWaitsFrom: 8, ReleasedAt: at.Add(-time.Hour), NextAt: at},
		"LaterRetry":    {LogWaitsFrom: 7, ReleasedAt: at, NextAt: at.Add(time.Hour)},
	} {
		if !earlier.GoesBefore(later) || later.GoesBefore(earlier) {
			t.Errorf("%s: got %t and %t the other way round, want true and false", name,
				earlier.GoesBefore(later), later.GoesBefore(earlier))
		}
	}
}
