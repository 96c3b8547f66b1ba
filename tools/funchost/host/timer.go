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

// schedule is when a timer fires.
type schedule struct {
	cron.Schedule
	cron bool // otherwise a time span
}

var cronParser = cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// parseSchedule reads NCRONTAB with six fields, or five (second 0), or a time span.
func parseSchedule(s string) (schedule, error) {
	fields := strings.Fields(s)
	if len(fields) == 1 {
		d, err := parseSpan(s)
		if err != nil || d <= 0 {
			return schedule{}, fmt.Errorf("schedule %q: neither a cron expression nor a time span", s)
		}
		return schedule{Schedule: every(d)}, nil
	}
	if len(fields) == 5 {
		s = "0 " + s
	}
	c, err := cronParser.Parse(s)
	if err != nil {
		return schedule{}, fmt.Errorf("schedule %q: %w", s, err)
	}
	return schedule{Schedule: c, cron: true}, nil
}

type every time.Duration

func (e every) Next(t time.Time) time.Time { return t.Add(time.Duration(e)) }

// monitored says whether the status is kept: not for what fires more than once a minute.
func (s schedule) monitored(f *function, now time.Time) bool {
	first := s.Next(now)
	return (f.trigger.UseMonitor == nil || *f.trigger.UseMonitor) && s.Next(first).Sub(first) >= time.Minute
}

// timer runs one timer function: once over all instances, never over itself.
type timer struct {
	host     *Host
	function *function
	schedule schedule
	file     string // of the status; empty = not monitored
	status   *scheduleStatus
}

// startTimers starts the one runner of each timer function. The caller holds the lock.
func (h *Host) startTimers() {
	for _, f := range h.app.functions {
		if !f.is("timerTrigger") || f.disabled || !h.listensTo(f) {
			continue
		}
		s, _ := parseSchedule(f.trigger.pattern) // it parsed before
		t := &timer{host: h, function: f, schedule: s}
		if s.monitored(f, h.console.now()) {
			t.file = filepath.Join(h.stateDir(), "timers", "Host.Functions."+f.name+".json")
		}
		ctx := h.listening
		h.work.Go(func() {
			t.run(ctx)
			h.console.log("Stopped the listener for function '%s'", f.name)
		})
	}
}

func (h *Host) stateDir() string {
	if h.cfg.StateDir != "" {
		return h.cfg.StateDir
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("funchost-%x", sha256.Sum256([]byte(h.app.root)))[:25])
}

// run fires until ctx ends. Missed moments count once, and only when the timer starts.
func (t *timer) run(ctx context.Context) {
	now := t.host.console.now()
	if t.pastDue(now) {
		t.fire(true)
	} else if t.function.trigger.RunOnStartup {
		t.fire(false)
	}
	next := t.schedule.Next(now)
	for {
		if !pause(ctx, next.Sub(t.host.console.now())) {
			return
		}
		began := later(next, t.host.console.now())
		t.fire(false)
		next = t.schedule.Next(began)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a // the clock may wake us a little early
	}
	return b
}

// pastDue looks at the recorded status. A schedule that was changed since is never past due.
func (t *timer) pastDue(now time.Time) bool {
	if t.file == "" {
		return false
	}
	t.status = t.load()
	if t.status == nil {
		t.record(&scheduleStatus{Next: t.schedule.Next(now), LastUpdated: now})
		return false
	}
	since := t.status.Last
	if since.IsZero() {
		since = t.status.LastUpdated
	}
	if !t.schedule.Next(since).Equal(t.status.Next) {
		t.record(&scheduleStatus{Last: t.status.Last, Next: t.schedule.Next(now), LastUpdated: now})
		return false
	}
	return now.After(t.status.Next)
}

func (t *timer) load() *scheduleStatus {
	raw, err := os.ReadFile(t.file)
	if err != nil {
		return nil
	}
	var s *scheduleStatus
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil
	}
	return s
}

// record keeps the status. That it cannot be written is only logged, as by the real host.
func (t *timer) record(s *scheduleStatus) {
	t.status = s
	raw, _ := json.Marshal(s)
	err := os.MkdirAll(filepath.Dir(t.file), 0o700)
	if err == nil {
		err = os.WriteFile(t.file, raw, 0o600)
	}
	if err != nil {
		t.host.console.log("The status of timer '%s' could not be kept: %v", t.function.name, err)
	}
}

// fire runs the function once, and records that it ran, whether or not it failed.
func (t *timer) fire(pastDue bool) {
	began := t.host.console.now()
	i, leave := t.host.take(t.function)
	defer leave()
	if i == nil {
		return
	}
	id := newGUID()
	if pastDue {
		t.host.console.event(categoryOf(t.function.name), levelInformation, "Trigger Details: UnscheduledInvocationReason: IsPastDue, OriginalSchedule: %s",
			t.status.Next.Format("2006-01-02T15:04:05.0000000-07:00"))
	}
	_, _ = i.invoke(id, t.function, timerPayload(t.function, t.schedule.cron, t.status, pastDue, began)) // reported there
	if t.file != "" && i.life.Err() == nil {
		t.record(&scheduleStatus{Last: began, Next: t.schedule.Next(began), LastUpdated: began})
	}
}
