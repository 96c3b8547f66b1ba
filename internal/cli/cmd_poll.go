package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/app"
	"weir/internal/poll"
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

func (s *console) pollCommand() *cobra.Command {
	var f pollFlags
	cmd := &cobra.Command{Use: "poll", Short: "Work for one period, for places without triggers", Long: pollHelp, Args: cobra.NoArgs}
	d, flags := app.DefaultPollConfig(), cmd.Flags()
	flags.DurationVar(&f.period, "period", d.Period, "time from one start to the next")
	flags.DurationVar(&f.idle, "idle", d.Idle, "time between two looks at the lanes")
	flags.DurationVar(&f.estimate, "estimate", d.Estimate, "average time of an attempt, until it is known")
	flags.Float64Var(&f.tolerance, "tolerance", d.Tolerance, "how many averages before the period's end to stop")
	addVerboseFlag(cmd, &f.verbose)
	addJSONFlag(cmd, &f.asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		a, err := s.openApp(cmd.Context(), f.verbose)
		if err != nil {
			return asFailure(err, false)
		}
		defer a.Close(cmd.Context())
		cfg := f.override(a.PollConfig(), flags.Changed)
		if err := errors.Join(cfg.Check(), cfg.Fits()); err != nil {
			return err
		}
		return asFailure(s.runPoll(cmd.Context(), a, cfg, f.asJSON), false)
	}
	return cmd
}

// config is what the settings say, and where a flag was given, the flag.
func (f *pollFlags) override(c poll.Config, given func(name string) bool) poll.Config {
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

// poll works for one period, which began when the process started.
func (s *console) runPoll(ctx context.Context, a *app.App, cfg poll.Config, asJSON bool) error {
	summary, err := a.Poll(ctx, cfg, s.startedAt)
	if summary == nil {
		return err
	}
	return errors.Join(err, s.printSummary(*summary, asJSON))
}

// period is what one came to, for programs. Times are seconds.
type pollOutput struct {
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

func (s *console) printSummary(sum poll.Summary, asJSON bool) error {
	if !asJSON {
		s.printLine("poll: %s", sum)
		return nil
	}
	c := sum.Counts
	return s.printJSON(pollOutput{sum.Runs, sum.Messages, c.Rejected, c.Retried, c.Unavailable, c.Cut, sum.Average.Seconds(), !sum.Known, sum.Idle, sum.Worked.Seconds()})
}
