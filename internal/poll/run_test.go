package poll_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/poll"
	"weir/internal/weir"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func TestConfig_Check(t *testing.T) {
	t.Parallel()
	good := poll.Config{Period: time.Minute, Idle: 5 * time.Second, Estimate: 2 * time.Second,
		Tolerance: 5, Timeout: 30 * time.Second}
	if err := errors.Join(good.Check(), good.Fits()); err != nil {
		t.Error(err)
	}

	for name, c := range map[string]struct {
		change func(*poll.Config)
		says   string
	}{
		"Period":     {func(c *poll.Config) { c.Period = 0 }, "period is 0s"},
		"Idle":       {func(c *poll.Config) { c.Idle = 0 }, "idle is 0s"},
		"Estimate":   {func(c *poll.Config) { c.Estimate = 0 }, "estimate is 0s"},
		"Tolerance":  {func(c *poll.Config) { c.Tolerance = 0.5 }, "tolerance is 0.5"},
		"NotANumber": {func(c *poll.Config) { c.Tolerance = math.NaN() }, "tolerance is NaN"},
		"Timeout":    {func(c *poll.Config) { c.Period = 30 * time.Second }, "delivery.timeout"},
		"TooSlow": {func(c *poll.Config) { c.Estimate = 12 * time.Second },
			"estimate × tolerance (1m0s)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := good
			c.change(&cfg)

			if err := errors.Join(cfg.Check(), cfg.Fits()); err == nil ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("got the error %v, want %q in it", err, c.says)
			}
		})
	}
}

// fake is the Reader, the Drainer, the Sweeper and the CMS of one Run.
type fake struct {
	mu      sync.Mutex
	started time.Time
	control lane.Control
	readErr error
	sweeps  int
	sweep   error
	report  drain.Report
	looks   []time.Duration // times of the reads of control rows, counted from started
	wakes   int
	closed  time.Duration // time of Close, counted from started
	limit   time.Duration // time that the context of Close allowed
	takes   time.Duration // time that one attempt takes
}

func (f *fake) ReadControl(ctx context.Context, _ int) (lane.Control, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks = append(f.looks, time.Since(f.started))
	return f.control, f.readErr
}

func (f *fake) Wake(int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wakes++
}
func (f *fake) Report(int) drain.Report { return f.report }
func (f *fake) Close(ctx context.Context) error {
	f.closed = time.Since(f.started)
	deadline, _ := ctx.Deadline()
	f.limit = time.Until(deadline)
	return nil
}
func (f *fake) Sweep(context.Context) error { f.sweeps++; return f.sweep }
func (f *fake) Send(context.Context, weir.Delivery) weir.Result {
	time.Sleep(f.takes)
	return weir.Result{Outcome: weir.OutcomeDelivered, Duration: f.takes}
}

// newRun returns a run whose period of one minute begins now. Until its first attempt is measured,
// the run reserves the last 10 s of the period: Estimate × Tolerance.
func (f *fake) newRun() *poll.Run {
	f.started = time.Now()
	return &poll.Run{
		Config: poll.Config{Period: time.Minute, Idle: 5 * time.Second, Estimate: 2 * time.Second,
			Tolerance: 5, Timeout: time.Second},
		Start: f.started, Lanes: 1, Log: f, Drainer: f, Sweeper: f,
		Meter: poll.NewMeter(f, time.Now), Now: time.Now,
		Logger: quiet,
	}
}

func TestRun_StopsBeforeThePeriodEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attempt time.Duration // time of an attempt that is made at once; 0 = no attempt is made
		timeout time.Duration
		stops   time.Duration
	}{
		"ByEstimate":           {0, time.Second, 50 * time.Second},
		"ByAverage":            {400 * time.Millisecond, time.Second, 58 * time.Second},
		"ByTimeout":            {100 * time.Millisecond, 3 * time.Second, 57 * time.Second},
		"BySlowAverage":        {8 * time.Second, 10 * time.Second, 20 * time.Second},
		"AtOnceWhenTooSlow":    {20 * time.Second, 30 * time.Second, 20 * time.Second},
		"TimeoutOverEstimate":  {0, 30 * time.Second, 30 * time.Second},
		"AverageOverThePeriod": {25 * time.Second, 30 * time.Second, 25 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{takes: c.attempt}
				r := f.newRun()
				r.Timeout = c.timeout
				if c.attempt > 0 {
					go r.Meter.Send(t.Context(), weir.Delivery{})
				}

				s, err := r.Do(t.Context())
				if err != nil || f.closed != c.stops || s.Worked != c.stops {
					t.Errorf("stopped after %s with %+v and the error %v; want a stop after %s and no error", f.closed,
						s, err, c.stops)
				}

				if f.limit < c.timeout {
					t.Errorf("Close got %s for an attempt in flight with a timeout of %s, want at least %s", f.limit,
						c.timeout, c.timeout)
				}

				if want := float64(c.stops-c.attempt) / float64(c.stops); math.Abs(s.Idle-want) >
					0.001 ||
					s.Known != (c.attempt > 0) {
					t.Errorf("idle %.3f, want %.3f; %+v", s.Idle, want, s)
				}
			})
		})
	}
}

func TestRun_LooksEachIdleAndSweepsEachMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{control: lane.Control{Head: lane.Head{Next: 2}, Tail: lane.Tail{Cursor: 1}}}
		r := f.newRun()
		r.Period = 125 * time.Second
		s, err := r.Do(t.Context())
		if err != nil || s.Runs != 23 || f.wakes != 23 || f.sweeps != 2 {
			t.Errorf("got %d runs, %d wakes, %d sweeps, %v; want Runs 23, wakes 23, sweeps 2 and no error", s.Runs,
				f.wakes, f.sweeps, err)
		}

		for i, at := range f.looks {
			if at != time.Duration(i)*5*time.Second {
				t.Errorf("read %d of the lanes came after %s, want a read each 5s", i, at)
			}
		}

		if got := s.String(); got !=
			"23 runs, 0 messages, average 2s (estimate), idle 100 %, 1m55s" {
			t.Errorf("got %q, want %q", got,
				"23 runs, 0 messages, average 2s (estimate), idle 100 %, 1m55s")
		}
	})
}

func TestRun_WakesForMessagesDueInThisPeriodOnly(t *testing.T) {
	t.Parallel()
	for due, want := range map[time.Duration]bool{59 * time.Second: true, 2 * time.Minute: false} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{control: lane.Control{Head: lane.Head{Next: 2},
				Tail: lane.Tail{Cursor: 2,
					DueState: lane.DueState{NextDueAt: time.Now().Add(due)}}}}
			if _, err := f.newRun().Do(t.Context()); err != nil || (f.wakes > 0) != want {
				t.Errorf("a message due in %s: got %d wakes, %v; want a wake: %v", due,
					f.wakes, err, want)
			}
		})
	}
}

func TestRun_Fails(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	for name, c := range map[string]struct {
		f      *fake
		change func(*fake, *poll.Run)
		says   string
	}{
		"LanesCannotBeRead": {f: &fake{readErr: away}, says: "lane 0: away"},
		"SweepFails":        {f: &fake{sweep: away}, says: "sweep: away"},
		"LaneCannotBeTaken": {f: &fake{report: drain.Report{State: drain.Waiting, Err: away}},
			says: "lane 0: away"},
		"StartedTooLate": {f: &fake{},
			change: func(_ *fake, r *poll.Run) { r.Start = r.Start.Add(-time.Minute) },
			says:   "the period was over"},
		"StorageIsBack": {f: &fake{readErr: away}, change: func(f *fake, _ *poll.Run) {
			time.AfterFunc(12*time.Second, func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.readErr = nil
			})
		}},
		"CMSAway": {f: &fake{report: drain.Report{State: drain.Waiting, Paused: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := c.f.newRun()
				if c.change != nil {
					c.change(c.f, r)
				}

				_, err := r.Do(t.Context())
				if c.says == "" && err != nil ||
					c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
					t.Errorf("got the error %v, want %q", err, c.says)
				}

				if c.f.closed == 0 && c.says != "the period was over" {
					t.Error("the drainer was not closed, want it closed at the end")
				}
			})
		})
	}
}

func TestRun_EndsInOrderWhenToldTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(7*time.Second, cancel)
		s, err := f.newRun().Do(ctx)
		if err != nil || s.Worked != 7*time.Second || f.closed != 7*time.Second || s.Runs != 2 {
			t.Errorf("got %+v, closed after %s, %v; want Worked 7s, closed 7s, Runs 2 and no error",
				s, f.closed, err)
		}
	})
}
