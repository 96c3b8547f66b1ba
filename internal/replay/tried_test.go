package replay

import (
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"weir/internal/lane"
)

// A process that runs for months must not keep the id of each bulk replay that is over.
func TestRunner_ForgetsJobsThatAreOver(t *testing.T) {
	t.Parallel()
	r := New(Config{Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	r.running["running"] = &activeJob{}
	r.hasTried = map[string]bool{"running": true, "over": true}

	r.ResumeOrphans(lane.Control{})
	if got := slices.Collect(maps.Keys(r.hasTried)); !slices.Equal(got, []string{"running"}) {
		t.Errorf("got the tried jobs %q, want only the running one", got)
	}
}
