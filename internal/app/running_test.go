package app

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/lane"
)

// The default alert "lane-paused-by-cms" of infra/modules/alerts.bicep counts the lines of the
// sweep. It must see a pause as long as the pause lasts. If a CMS asks for a long pause
// (Retry-After), the holder logs one line only.
func TestRunning_SweepLogsEachPauseByTheCMS(t *testing.T) {
	t.Parallel()
	out := &lockedBuffer{}
	r := newTestRunningLogging(t, minimal, slog.New(slog.NewTextHandler(out, nil)))
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
		tail.PausedUntil, tail.PauseReason = time.Now().Add(time.Hour),
			"503 Service Unavailable: maintenance"
	})
	if err != nil {
		t.Fatal(err)
	}

	const sweeps = 3
	for range sweeps {
		sweep()
	}

	if got := strings.Count(out.String(), line); got != sweeps ||
		!strings.Contains(out.String(), "maintenance") {
		t.Errorf("got %d lines in\n%s\nwant one for each of %d sweeps, with the words of the CMS",
			got, out.String(), sweeps)
	}
}

// If the CMS refuses a single key, the alert on an unavailable CMS must stay silent: the CMS takes
// all other messages.
func TestRunning_SweepTellsRefusedKeysFromAnOutage(t *testing.T) {
	t.Parallel()
	out := &lockedBuffer{}
	r := newTestRunningLogging(t, minimal, slog.New(slog.NewTextHandler(out, nil)))
	if err := r.store.EnsureControlRows(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}

	newTestHolder(t, r).append("/stuck")
	c, err := r.store.ReadControl(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}

	_, err = r.store.RaiseFence(t.Context(), 0, "other", c.Tail, func(tail *lane.Tail) {
		tail.PausedUntil, tail.PauseReason = time.Now().Add(time.Minute), "403 Forbidden"
		tail.RefusingSince, tail.ProbedBelow = time.Now(), 2
	})
	if err != nil {
		t.Fatal(err)
	}

	if err := r.sweeper.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}

	if text := out.String(); !strings.Contains(text, "sweep: the cms refuses keys") ||
		!strings.Contains(text, "key=/stuck") ||
		strings.Contains(text, "sweep: lane is paused by the cms") {
		t.Errorf("got\n%s\nwant the refused key, and no pause by the CMS", text)
	}

	for path, wants := range map[string][]string{
		"/api/lanes": {`"refusedKeys":1,"refusedKey":"/stuck","hasFewRefused":true`},
		"/api/metrics": {`weir_lane_refused_keys{lane="0"} 1`,
			`weir_lane_paused{by="cms",lane="0"} 0`},
		"/api/dashboard": {"The CMS does not take the messages of 1 key", "/stuck", "403 Forbidden",
			"Messages of other keys are sent."},
	} {
		answer := httptest.NewRecorder()
		r.handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))

		for _, want := range wants {
			if !strings.Contains(answer.Body.String(), want) ||
				strings.Contains(answer.Body.String(), "The CMS is unavailable.") {
				t.Errorf("%s: got\n%s\nwant %q in it, and no outage", path, answer.Body, want)
			}
		}
	}
}

// lockedBuffer is a buffer that many goroutines can write.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
