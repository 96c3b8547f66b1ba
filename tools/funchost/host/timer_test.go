package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/invoke"
	"weir/tools/funchost/host"
)

func timerFunction(extra string) map[string]string {
	return map[string]string{"sweep": `{"bindings":[{"type":"timerTrigger","direction":"in","name":"tick"` + extra +
		`}]}`}
}

func decodeTimer(t *testing.T, c handlerCall) (timer invoke.Timer) {
	t.Helper()
	inv, err := invoke.Decode(strings.NewReader(c.Body))
	if err == nil {
		timer, err = inv.Timer("tick")
	}

	if err != nil {
		t.Fatalf("decode the timer of %s: %v", c.Body, err)
	}

	return timer
}

func (r *rig) statusFilePath() string {
	return filepath.Join(r.root, ".state", "timers", "Host.Functions.sweep.json")
}

func TestTimer_OneRunnerForAllInstances(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{functions: timerFunction(`,"schedule":"*/1 * * * * *"`),
		cfg: host.Config{Instances: 3}}).startHost()
	var at []time.Time
	for range 3 {
		c := r.nextCall()
		if c.URI != "/sweep" || decodeTimer(t, c).IsPastDue ||
			!strings.Contains(c.Body,
				`{"tick":{"Schedule":{"AdjustForDST":true},"ScheduleStatus":null,`+
					`"IsPastDue":false}}`) {
			t.Errorf("the handler got %+v, want URI /sweep, IsPastDue false and %q in Body", c,
				`{"tick":{"Schedule":{"AdjustForDST":true},"ScheduleStatus":null,`+
					`"IsPastDue":false}}`)
		}

		at = append(at, time.Now())
	}

	if d := at[2].Sub(at[1]); d < 500*time.Millisecond {
		t.Errorf("two runs within %v, want at least 500ms of one runner", d)
	}

	if _, err := os.Stat(r.statusFilePath()); err == nil {
		t.Error("a schedule that fires more than once a minute has a status, want none")
	}
}

func TestTimer_RunOnStartup(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{functions: timerFunction(`,"schedule":"0 0 0 1 1 *","runOnStartup":true`)}).startHost()
	c := r.nextCall()
	if decodeTimer(t, c).IsPastDue ||
		!strings.Contains(c.Body, `"Last":"0001-01-01T00:00:00+00:00"`) {
		t.Errorf(`the handler got %s, want IsPastDue false and "Last":"0001-01-01T00:00:00+00:00"`,
			c.Body)
	}
}

func TestTimer_PastDueOnStartOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{functions: timerFunction(`,"schedule":"01:00:00"`)})
	now := time.Now()
	last := now.Add(-5 * time.Hour)
	r.writeFile(".state/timers/Host.Functions.sweep.json", statusJSON(last, last.Add(time.Hour)))
	r.startHost()
	c := r.nextCall()
	if !decodeTimer(t, c).IsPastDue || !strings.Contains(c.Body, `"AdjustForDST":false`) {
		t.Errorf("the handler got %s, want IsPastDue true and \"AdjustForDST\":false", c.Body)
	}

	awaitCondition(t, "the run is recorded", func() bool {
		raw, _ := os.ReadFile(r.statusFilePath())
		return strings.Contains(string(raw), now.Add(time.Hour).Format("2006-01-02T15"))
	})

	if len(r.calls) != 0 {
		t.Errorf("%d more calls for missed moments, want none", len(r.calls))
	}
}

func statusJSON(last, next time.Time) string {
	const layout = time.RFC3339Nano
	return `{"Last":"` + last.Format(layout) + `","Next":"` + next.Format(layout) +
		`","LastUpdated":"` +
		last.Format(layout) + `"}`
}

func TestTimer_ChangedScheduleIsNotPastDue(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{functions: timerFunction(`,"schedule":"01:00:00"`)})
	last := time.Now().Add(-5 * time.Hour)
	r.writeFile(".state/timers/Host.Functions.sweep.json", statusJSON(last, last.Add(2*time.Hour)))
	old, _ := os.ReadFile(r.statusFilePath())
	r.startHost()
	awaitCondition(t, "the status is computed anew", func() bool {
		raw, _ := os.ReadFile(r.statusFilePath())
		return len(raw) > 0 && string(raw) != string(old)
	})

	r.host.Stop()
	if len(r.calls) != 0 {
		t.Errorf("the timer ran %d times, want never", len(r.calls))
	}
}

func TestTimer_StartedManually(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{functions: timerFunction(`,"schedule":"0 0 0 1 1 *"`)}).startHost()
	if got := r.sendRequest("POST", "/admin/functions/sweep", `{"input":""}`); got.StatusCode !=
		202 {
		t.Fatalf("answered %d, want 202", got.StatusCode)
	}

	if decodeTimer(t, r.nextCall()).IsPastDue {
		t.Error("IsPastDue of a manual run = true, want false")
	}

	if got := r.sendRequest("POST", "/admin/functions/nothing", `{}`); got.StatusCode != 404 {
		t.Errorf("answered %d for an unknown function, want 404", got.StatusCode)
	}
}
