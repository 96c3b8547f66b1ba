package drain

import (
	"testing"

	"weir/internal/lane"
	"weir/internal/weir"
)

// A waiting message can have a version that was accepted under other rules of the contract.
func TestIsOutdated_ByAVersionOfOtherRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version, delivered string
		want               bool
	}{
		{"2030-01-31T08:00:00Z", "2030-01-31T07:00:00Z", false},
		{"2030-01-31T08:00:00Z", "2030-01-31T09:00:00Z", true},
		{"soon", "2030-01-31T09:00:00Z", true},
	} {
		latest := lane.LatestVersion{Version: c.delivered, ID: weir.ID{Seq: 1}}
		if got := isOutdated(c.version, latest); got != c.want {
			t.Errorf("version %s behind the delivered %s: got outdated %v, want %v", c.version,
				c.delivered, got, c.want)
		}
	}
}
