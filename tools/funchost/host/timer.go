package host

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

type timerSchedule struct {
	cron.Schedule
	isCron bool // true = a cron expression, false = a time span
}

var cronParser = cron.MustNewParser(
	cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// parseSchedule parses a time span, or an NCRONTAB expression of six or five fields. With five
// fields, the second is always 0.
func parseSchedule(s string) (timerSchedule, error) {
	fields := strings.Fields(s)
	if len(fields) == 1 {
		d, err := parseSpan(s)
		if err != nil || d <= 0 {
			return timerSchedule{},
				fmt.Errorf("schedule %q: neither a cron expression nor a time span", s)
		}
		return timerSchedule{Schedule: interval(d)}, nil
	}

	if len(fields) == 5 {
		s = "0 " + s
	}

	c, err := cronParser.Parse(s)
	if err != nil {
		return timerSchedule{}, fmt.Errorf("schedule %q: %w", s, err)
	}

	return timerSchedule{Schedule: c, isCron: true}, nil
}

type interval time.Duration

func (e interval) Next(t time.Time) time.Time { return t.Add(time.Duration(e)) }

// isMonitored reports whether the host stores the status of a timer. It returns false if the
// trigger's useMonitor is false, or if the timer fires more than once a minute.
func (s timerSchedule) isMonitored(f *function, now time.Time) bool {
	first := s.Next(now)
	return (f.trigger.UseMonitor == nil || *f.trigger.UseMonitor) &&
		s.Next(first).Sub(first) >= time.Minute
}

// timerRunner runs one timer function on its schedule, each time on one instance. The runs never
// overlap.
type timerRunner struct {
	host       *Host
	function   *function
	schedule   timerSchedule
	statusFile string // path of the stored status; empty = the timer is not monitored
	status     *scheduleStatus
}

// startTimers starts one runner for each enabled timer function whose listener runs in this host.
// The caller has locked h.mu.
func (h *Host) startTimers() {
	for _, f := range h.app.functions {
		if !f.hasTrigger("timerTrigger") || f.isDisabled || !h.listensFor(f) {
			continue
		}

		// cannot fail: the start of the host has checked the schedule
		s, _ := parseSchedule(f.trigger.pattern)
		t := &timerRunner{host: h, function: f, schedule: s}
		if s.isMonitored(f, h.console.now()) {
			t.statusFile = filepath.Join(timerStateDir(h), "timers",
				"Host.Functions."+f.name+".json")
		}

		ctx := h.listening
		h.background.Go(func() {
			t.runUntil(ctx)
			h.console.logOwn("Stopped the listener for function '%s'", f.name)
		})
	}
}

func timerStateDir(h *Host) string {
	if h.cfg.StateDir != "" {
		return h.cfg.StateDir
	}
	return filepath.Join(os.TempDir(),
		fmt.Sprintf("funchost-%x", sha256.Sum256([]byte(h.app.root)))[:25])
}

// runUntil runs the timer until ctx ends. If the timer has missed scheduled times, runUntil first
// fires it once for all of them. Otherwise runUntil fires the timer at once only if the trigger has
// runOnStartup.
func (t *timerRunner) runUntil(ctx context.Context) {
	now := t.host.console.now()
	if t.isPastDue(now) {
		t.fireOnce(true)
	} else if t.function.trigger.RunOnStartup {
		t.fireOnce(false)
	}

	next := t.schedule.Next(now)
	for {
		if !sleepFor(ctx, next.Sub(t.host.console.now())) {
			return
		}
		began := laterOf(next, t.host.console.now()) // the sleep can end a little before next
		t.fireOnce(false)
		next = t.schedule.Next(began)
	}
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// isPastDue loads the stored status of a monitored timer. It reports whether the time of the next
// run, as stored in the status, has passed. If no status is stored, or if the schedule has changed,
// isPastDue stores a new status and returns false.
func (t *timerRunner) isPastDue(now time.Time) bool {
	if t.statusFile == "" {
		return false
	}

	t.status = t.loadStatus()
	if t.status == nil {
		t.saveStatus(&scheduleStatus{Next: t.schedule.Next(now), LastUpdated: now})
		return false
	}

	since := t.status.Last
	if since.IsZero() {
		since = t.status.LastUpdated
	}

	if !t.schedule.Next(since).Equal(t.status.Next) {
		t.saveStatus(&scheduleStatus{Last: t.status.Last, Next: t.schedule.Next(now),
			LastUpdated: now})
		return false
	}

	return now.After(t.status.Next)
}

func (t *timerRunner) loadStatus() *scheduleStatus {
	raw, err := os.ReadFile(t.statusFile)
	if err != nil {
		return nil
	}

	var s *scheduleStatus
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil
	}

	return s
}

// saveStatus stores the status. If that fails, saveStatus only logs the error, as the real host
// does.
func (t *timerRunner) saveStatus(s *scheduleStatus) {
	t.status = s
	raw, _ := json.Marshal(s)
	err := os.MkdirAll(filepath.Dir(t.statusFile), 0o700)
	if err == nil {
		err = os.WriteFile(t.statusFile, raw, 0o600)
	}

	if err != nil {
		t.host.console.logOwn("The status of timer '%s' could not be kept: %v",
			t.function.name, err)
	}
}

// fireOnce runs the function once. After the run it stores the status of a monitored timer, even if
// the run failed. It stores no status if the instance ended during the run.
func (t *timerRunner) fireOnce(pastDue bool) {
	began := t.host.console.now()
	i, leave := t.host.pickInstance(t.function)
	defer leave()
	if i == nil {
		return
	}

	id := newGUID()

	if pastDue {
		t.host.console.logEvent(categoryOf(t.function.name), levelInformation,
			"Trigger Details: UnscheduledInvocationReason: IsPastDue, OriginalSchedule: %s",
			t.status.Next.Format("2006-01-02T15:04:05.0000000-07:00"))
	}

	_, _ = caller{i}.invokeFunction(id, t.function,
		timerPayload(t.function, t.schedule.isCron, t.status, pastDue,
			began)) // invokeFunction reports the error
	if t.statusFile != "" && i.lifetime.Err() == nil {
		t.saveStatus(&scheduleStatus{Last: began, Next: t.schedule.Next(began), LastUpdated: began})
	}
}
