package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"weir/functions/sweep"
	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/notify"
	"weir/internal/poll"
	"weir/internal/recur"
	"weir/internal/ticket"
)

const pollHelp = `Works like a continuous consumer until just before its next start, for places that have
no triggers or may only start a job at intervals: cron, a systemd timer, a Kubernetes
CronJob, a Container Apps job. Start it each --period.

It looks at all lanes each --idle, delivers what is there, does the sweep's work, and stops
when now + average × --tolerance, or now + delivery.timeout, would pass the period's end.
No attempt begins whose timeout would pass it. Then it hands its lanes over, prints a line
(runs over the lanes, messages delivered, average time of an attempt, share of the time
without one) and ends with 0, also when it was told to by SIGTERM or SIGINT.

It ends with 1 when storage could not be reached, with the reason on stderr. A CMS that is
away is no failure: its messages wait.

The flags win over the settings under poll: in weir.yaml.`

// pollFlags are the flags of handler poll, which stand in weir.yaml too.
type pollFlags struct {
	period, idle, estimate time.Duration
	tolerance              float64
	verbose, asJSON        bool
}

func (s *shell) pollCommand() *cobra.Command {
	var f pollFlags
	cmd := &cobra.Command{Use: "poll", Short: "Work for one period, for places without triggers", Long: pollHelp, Args: cobra.NoArgs}
	d, flags := defaults().Poll, cmd.Flags()
	flags.DurationVar(&f.period, "period", time.Duration(d.Period), "time from one start to the next")
	flags.DurationVar(&f.idle, "idle", time.Duration(d.Idle), "time between two looks at the lanes")
	flags.DurationVar(&f.estimate, "estimate", time.Duration(d.Estimate), "average time of an attempt, until it is known")
	flags.Float64Var(&f.tolerance, "tolerance", d.Tolerance, "how many averages before the period's end to stop")
	addVerbose(cmd, &f.verbose)
	addJSON(cmd, &f.asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := s.program(cmd.Context(), f.verbose)
		if err != nil {
			return failed(err, false)
		}
		defer flush(cmd.Context(), p.export)
		cfg := f.config(p.settings, flags.Changed)
		if err := errors.Join(cfg.Check(), cfg.Fits()); err != nil {
			return err
		}
		return failed(s.poll(cmd.Context(), p, cfg, f.asJSON), false)
	}
	return cmd
}

// config is what the settings say, and where a flag was given, the flag.
func (f *pollFlags) config(s Settings, given func(name string) bool) poll.Config {
	c := s.poll()
	for name, set := range map[string]func(){
		"period":    func() { c.Period = f.period },
		"idle":      func() { c.Idle = f.idle },
		"estimate":  func() { c.Estimate = f.estimate },
		"tolerance": func() { c.Tolerance = f.tolerance },
	} {
		if given(name) {
			set()
		}
	}
	return c
}

// poll works for one period, which began when the process did.
func (s *shell) poll(ctx context.Context, p *Program, cfg poll.Config, asJSON bool) error {
	opening, cancel := context.WithDeadline(ctx, cfg.NotAfter(s.started))
	defer cancel()
	store, err := p.awaitStore(opening)
	if ctx.Err() != nil {
		return nil // told to end before it began
	}
	if err != nil {
		return fmt.Errorf("storage could not be opened: %w", err)
	}
	meter := poll.NewMeter(p.sender(), time.Now)
	c := p.consumer(ctx, store, meter, cfg.NotAfter(s.started))
	sweeper := p.sweeper(store, c.Drainer)
	sweeper.Schedules = c.runner
	lookHourly(p.cleaner.Load(), s.started, cfg.Period)
	run := &poll.Run{Config: cfg, Start: s.started, Lanes: p.settings.Lanes, Log: store, Drainer: c,
		Sweeper: sweeper, Meter: meter, Now: time.Now, Logger: p.log}
	summary, err := run.Do(ctx)
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer stop()
	return errors.Join(err, closeTogether(limited, p.backgroundClosers()...), s.tellPeriod(summary, asJSON))
}

// period is what one came to, for programs. Times are seconds.
type period struct {
	Runs        int     `json:"runs"`
	Delivered   int     `json:"delivered"`
	Rejected    int     `json:"rejected"`
	Retried     int     `json:"retried"`
	Unavailable int     `json:"unavailable"`
	Cut         int     `json:"cut"`
	Average     float64 `json:"averageSeconds"`
	Estimated   bool    `json:"estimated"`
	Idle        float64 `json:"idle"`
	Worked      float64 `json:"seconds"`
}

func (s *shell) tellPeriod(sum poll.Summary, asJSON bool) error {
	if !asJSON {
		s.print("poll: %s", sum)
		return nil
	}
	c := sum.Counts
	return s.document(period{sum.Runs, sum.Messages, c.Rejected, c.Retried, c.Unavailable, c.Cut, sum.Average.Seconds(), !sum.Known, sum.Idle, sum.Worked.Seconds()})
}

// consumer is a drainer with the schedules of recurring messages, which file into it.
type consumer struct {
	*drain.Drainer
	runner *recur.Runner
	bell   *ticket.Sender
	sender *notify.Sender
}

func (p *Program) consumer(ctx context.Context, store *lane.Store, sender drain.Sender, notAfter time.Time) consumer {
	bell, tells := p.newBell(store), p.startNotifier(ctx, store)
	cfg := p.drainConfig(store, bell)
	cfg.Sender, cfg.NotAfter = sender, notAfter
	drainer := drain.New(cfg)
	appender := p.newAppender(store, drainer)
	return consumer{drainer, p.newRunner(store, appender, bell), bell, tells}
}

// Close ends the schedules, then all drains.
func (c consumer) Close(ctx context.Context) error {
	err := errors.Join(c.runner.Close(ctx), c.Drainer.Close(ctx))
	c.bell.Wait(ctx)
	return errors.Join(err, closeNotifier(ctx, c.sender))
}

// lookHourly lets only the first process of each hour look for forgotten bodies: each look costs
// a read of the row that records the last one.
func lookHourly(c *sweep.Cleaner, started time.Time, period time.Duration) {
	if hour := started.Truncate(time.Hour); !hour.After(started.Add(-period)) {
		c.ForgottenAt = hour.Add(time.Hour)
	}
}
