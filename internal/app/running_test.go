package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
)

// The default alert "lane-paused-by-cms" of infra/modules/alerts.bicep counts the lines of the sweep. It must see a
// pause as long as the pause lasts. If a CMS asks for a long pause (Retry-After), the holder logs one line only.
func TestRunning_SweepLogsEachPauseByTheCMS(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := newTestRunningLogging(t, minimal, slog.New(slog.NewTextHandler(&out, nil)))
	if err := r.store.EnsureControlRows(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}
	const line = "sweep: lane is paused by the cms"
	sweep := func() {
		t.Helper()
		if err := r.sweeper.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	if strings.Contains(out.String(), line) {
		t.Errorf("got %s, want no line before the pause", out.String())
	}
	_, err := r.store.RaiseFence(t.Context(), 0, "nonce", lane.Tail{}, func(tail *lane.Tail) {
		tail.PausedUntil, tail.PauseReason = time.Now().Add(time.Hour), "503 Service Unavailable: maintenance"
	})
	if err != nil {
		t.Fatal(err)
	}
	const sweeps = 3
	for range sweeps {
		sweep()
	}
	if got := strings.Count(out.String(), line); got != sweeps || !strings.Contains(out.String(), "maintenance") {
		t.Errorf("got %d lines in\n%s\nwant one for each of %d sweeps, with the words of the CMS", got, out.String(),
			sweeps)
	}
}
