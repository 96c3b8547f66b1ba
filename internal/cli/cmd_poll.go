package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/app"
	"weir/internal/poll"
)

const pollHelp = `Delivers messages for one period, and ends shortly before the next one. It is for platforms that
have no triggers and start a job at intervals: cron, a systemd timer, a Kubernetes CronJob, a
Container Apps job. Start it once in each --period.

Once in each --idle the command looks through all lanes, delivers their messages, and does the work
of the sweep. It stops when the rest of the period is shorter than delivery.timeout, or than the
average time of an attempt × --tolerance. So no attempt can outlast the period.

At its end the command hands its lanes over and prints a line: runs over the lanes, messages
delivered, average time of an attempt, share of the time without an attempt. It then ends with 0,
also after SIGTERM or SIGINT.

The command ends with 1 if storage could not be reached, with the reason on stderr. An unavailable
CMS is no failure: its messages wait.

The flags take precedence over the settings under poll: in weir.yaml.`

type pollFlags struct {
	period, idle, estimate time.Duration
	tolerance              float64
	verbose, asJSON        bool
}

func newPollCommand(s *console) *cobra.Command {
	var f pollFlags
	cmd := &cobra.Command{Use: "poll", Short: "Deliver for one period, for cron and the like",
		Long: pollHelp, Args: cobra.NoArgs}
	d, flags := app.DefaultPollConfig(), cmd.Flags()
	addDurationFlag(flags, &f.period, "period", d.Period, "time from one start to the next")
	addDurationFlag(flags, &f.idle, "idle", d.Idle, "time between two checks of the lanes")
	addDurationFlag(flags, &f.estimate, "estimate", d.Estimate,
		"average time of an attempt, until it is known")
	flags.Float64Var(&f.tolerance, "tolerance", d.Tolerance,
		"stop this many average attempts before the end of the period")
	addVerboseFlag(cmd, &f.verbose)
	addJSONFlag(cmd, &f.asJSON)
	s.addDataFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		a, err := s.openApp(cmd.Context(), f.verbose)
		if err != nil {
			return asFailure(err, false)
		}
		defer a.Close(cmd.Context())
		cfg := f.overrideConfig(a.PollConfig(), flags.Changed)
		if err := errors.Join(cfg.Check(), cfg.Fits()); err != nil {
			return err
		}

		return asFailure(s.runPoll(cmd.Context(), a, cfg, f.asJSON), false)
	}

	return cmd
}

// overrideConfig returns c with the values of the given flags.
func (f *pollFlags) overrideConfig(c poll.Config, given func(name string) bool) poll.Config {
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

// runPoll delivers messages for one period and prints the summary. The period began at the start of
// the process.
func (s *console) runPoll(ctx context.Context, a *app.App, cfg poll.Config, asJSON bool) error {
	summary, err := a.Poll(ctx, cfg, s.startedAt)
	if summary == nil {
		return err
	}
	return errors.Join(err, s.printSummary(*summary, asJSON))
}

type pollOutput struct {
	Runs        int     `json:"runs"`
	Delivered   int     `json:"delivered"`
	Rejected    int     `json:"rejected"`
	Retried     int     `json:"retried"`
	Unavailable int     `json:"unavailable"`
	Cut         int     `json:"cut"`
	Average     float64 `json:"averageSeconds"`
	Estimated   bool    `json:"estimated"` // Average is the configured estimate, not a measurement
	Idle        float64 `json:"idle"`      // share of the time without an attempt in flight, 0 to 1
	Worked      float64 `json:"seconds"`   // time from the period's start to the end of the work
}

func (s *console) printSummary(sum poll.Summary, asJSON bool) error {
	if !asJSON {
		s.printLine("poll: %s", sum)
		return nil
	}

	c := sum.Counts
	return s.printJSON(pollOutput{Runs: sum.Runs, Delivered: sum.Messages, Rejected: c.Rejected,
		Retried:     c.Retried,
		Unavailable: c.Unavailable, Cut: c.Cut, Average: sum.Average.Seconds(),
		Estimated: !sum.Known,
		Idle:      sum.Idle, Worked: sum.Worked.Seconds()})
}
