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

// timerSchedule is the schedule of a timer.
type timerSchedule struct {
	cron.Schedule
	isCron bool // the schedule is a cron expression; otherwise it is a time span
}

var cronParser = cron.MustNewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// parseSchedule parses an NCRONTAB expression of six fields, or of five (second 0), or a time span.
func parseSchedule(s string) (timerSchedule, error) {
	fields := strings.Fields(s)
	if len(fields) == 1 {
		d, err := parseSpan(s)
		if err != nil || d <= 0 {
			return timerSchedule{}, fmt.Errorf("schedule %q: neither a cron expression nor a time span", s)
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

// isMonitored reports whether the host stores the status of a timer. It does not if the trigger turns that off,
// or if the timer fires more than once a minute.
func (s timerSchedule) isMonitored(f *function, now time.Time) bool {
	first := s.Next(now)
	return (f.trigger.UseMonitor == nil || *f.trigger.UseMonitor) && s.Next(first).Sub(first) >= time.Minute
}

// timerRunner runs one timer function on its schedule, each time on one instance. A run never begins before the last
// one has ended.
type timerRunner struct {
	host       *Host
	function   *function
	schedule   timerSchedule
	statusFile string // path of the stored status; empty = the timer is not monitored
	status     *scheduleStatus
}

// startTimers starts one runner for each timer function that is enabled and listened for. The caller has locked h.mu.
func (h *Host) startTimers() {
	for _, f := range h.app.functions {
		if !f.hasTrigger("timerTrigger") || f.isDisabled || !h.listensFor(f) {
			continue
		}
		s, _ := parseSchedule(f.trigger.pattern) // cannot fail: it was parsed at the start
		t := &timerRunner{host: h, function: f, schedule: s}
		if s.isMonitored(f, h.console.now()) {
			t.statusFile = filepath.Join(timerStateDir(h), "timers", "Host.Functions."+f.name+".json")
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
	return filepath.Join(os.TempDir(), fmt.Sprintf("funchost-%x", sha256.Sum256([]byte(h.app.root)))[:25])
}

// runUntil runs the timer until ctx ends. If the timer missed times before the start, it first fires once for all of
// them. Otherwise it fires at once only if the trigger has runOnStartup.
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
		began := laterOf(next, t.host.console.now())
		t.fireOnce(false)
		next = t.schedule.Next(began)
	}
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a // the timer may fire a little before the time
	}
	return b
}

// isPastDue loads the stored status of a monitored timer. It reports whether, by this status, the timer has missed a
// time. If there is no status yet, or the schedule has changed, the timer has missed none, and isPastDue stores a new
// status.
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
		t.saveStatus(&scheduleStatus{Last: t.status.Last, Next: t.schedule.Next(now), LastUpdated: now})
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

// saveStatus stores the status. Like the real host, it only logs an error.
func (t *timerRunner) saveStatus(s *scheduleStatus) {
	t.status = s
	raw, _ := json.Marshal(s)
	err := os.MkdirAll(filepath.Dir(t.statusFile), 0o700)
	if err == nil {
		err = os.WriteFile(t.statusFile, raw, 0o600)
	}
	if err != nil {
		t.host.console.logOwn("The status of timer '%s' could not be kept: %v", t.function.name, err)
	}
}

// fireOnce runs the function once. It stores the status of a monitored timer after the run, also after a failed one,
// but not if the instance ended during the run.
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
	_, _ = caller{i}.invokeFunction(id, t.function, timerPayload(t.function, t.schedule.isCron, t.status, pastDue,
		began)) // invokeFunction reports the error
	if t.statusFile != "" && i.lifetime.Err() == nil {
		t.saveStatus(&scheduleStatus{Last: began, Next: t.schedule.Next(began), LastUpdated: began})
	}
}
