package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/clock"
	"weir/internal/remote"
	"weir/internal/wire"
)

const deadReplayHelp = `Replays dead messages: those with the given IDs, those that match all given flags, or --all.

A replayed message takes its old position among the waiting messages of its key. The replay is
refused if a later message of the key was delivered, unless --force is given. --with sends a
corrected body, which must pass the contract and have the same key.

If flags select the messages, the command first counts them, and estimates the time; with
--dry-run it then stops. Otherwise it asks on the terminal before it starts the replay; with --yes
it does not ask. The replay goes on without this command. With --wait the command watches the
replay to its end, and ends with 1 if the replay was stopped or messages died again.

--json prints a line for each named message; else the plan ({"plan"}) and the replay as the API
returns it.`

type replayFlags struct {
	deadFilter
	all, dryRun, force, yes bool
	rate                    int
	stop                    float64
	reason, with, note      string
	wait                    bool
}

func newDeadReplayCommand(a *apiCommand) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{Use: "replay [ID…]", Short: "Have dead messages delivered again",
		Long: deadReplayHelp}
	f.addFlags(cmd)
	cmd.Flags().BoolVar(&f.all, "all", false, "all dead messages")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only count")
	cmd.Flags().BoolVar(&f.force, "force", false,
		"also messages of keys of which a later message was delivered")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	cmd.Flags().IntVar(&f.rate, "rate", 0, "messages a minute, 1 to 6000 (default: Weir's)")
	cmd.Flags().Float64Var(&f.stop, "stop-at-error-rate", 0,
		"stop if this share dies again, 0 to 1 (default: Weir's)")
	cmd.Flags().StringVar(&f.reason, "reason", "", "the reason, stored with the replay")
	cmd.Flags().StringVar(&f.with, "with", "", "a file with the corrected body, for one ID")
	cmd.Flags().StringVar(&f.note, "note", "",
		"the reason of the correction, stored with the message")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "watch the replay to its end")
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		if err := f.checkFlags(args); err != nil {
			return err
		}

		if len(args) > 0 {
			ids, err := parseMessageIDs(args)
			if err != nil {
				return err
			}
			return a.replayByID(ctx, ids, &f)
		}

		return a.replayMatching(ctx, &f)
	})

	return cmd
}

// filterFlags are the flags that select dead messages. The last entry must be "all", because the
// commands "replay" and "discard" cut off the last entry to get the other flags.
var filterFlags = []string{"key", "lane", "contract", "from", "to", "fingerprint", "all"}

func (f *replayFlags) checkFlags(ids []string) error {
	given := func(names ...string) (name string) {
		for _, n := range names {
			if f.cmd.Flags().Changed(n) {
				return n
			}
		}
		return ""
	}

	if len(ids) > 0 {
		bulkFlags := append(slices.Clone(filterFlags), "dry-run", "rate", "stop-at-error-rate",
			"reason", "wait")
		if name := given(bulkFlags...); name != "" {
			return &usageError{"--" + name + " does not go with IDs"}
		}
	}

	switch {
	case len(ids) == 0 && given(filterFlags...) == "":
		return &usageError{"say which: IDs, or flags, or --all"}
	case f.all && given(filterFlags[:len(filterFlags)-1]...) != "":
		return &usageError{"--all does not go with --" + given(filterFlags[:len(filterFlags)-1]...)}
	case f.with != "" && len(ids) != 1:
		return &usageError{"--with needs one ID"}
	case f.note != "" && f.with == "":
		return &usageError{"--note goes with --with"}
	case given("rate") != "" && (f.rate < 1 || f.rate > 6000):
		return &usageError{"--rate must be 1 to 6000"}
	case f.stop < 0 || f.stop > 1:
		return &usageError{"--stop-at-error-rate must be 0 to 1"}
	}

	return nil
}

func (a *apiCommand) replayByID(ctx context.Context, ids []string, f *replayFlags) error {
	var corrected []byte
	if f.with != "" {
		var err error
		if corrected, err = readBodyFile(f.with); err != nil {
			return err
		}
	}

	return a.changeEach(ctx, ids, func(id string) (json.RawMessage, string, error) {
		var m remote.Answer[wire.Message]
		var err error
		if f.with != "" {
			m, err = a.client.Edit(ctx, id, corrected, f.note, f.force)
		} else {
			m, err = a.client.Replay(ctx, id, f.force)
		}

		return m.JSON, id + ": replay requested", err
	})
}

func (a *apiCommand) replayMatching(ctx context.Context, f *replayFlags) error {
	filter, err := f.readFilter()
	if err != nil {
		return err
	}

	r := wire.ReplayRequest{Filter: &filter, Force: f.force, Reason: f.reason}
	if f.rate != 0 {
		r.RatePerMinute = &f.rate
	}

	if f.cmd.Flags().Changed("stop-at-error-rate") {
		r.StopAtErrorRate = &f.stop
	}

	plan, err := a.client.PlanReplay(ctx, r)
	if err != nil {
		return err
	}

	if err := a.printPlan(plan); err != nil || f.dryRun || plan.Value.Count == 0 {
		return err
	}

	if !f.yes {
		question := fmt.Sprintf("Replay %s?", formatCount(plan.Value.Count, "message"))
		if yes, err := a.askConfirmation(ctx, question); err != nil || !yes {
			return err
		}
	}

	job, err := a.client.StartReplay(ctx, r)
	if err != nil {
		return err
	}
	if !f.wait {
		return a.printJob(job)
	}

	return a.watchJob(ctx, job)
}

func (a *apiCommand) printPlan(plan remote.Answer[wire.JobPlan]) error {
	if a.json {
		return a.printJSON(map[string]any{"plan": plan.JSON})
	}

	p := plan.Value
	about := "About"
	if !p.Complete {
		about = "At least"
	}

	text := fmt.Sprintf("%s %s of %s.", about, formatCount(p.Count, "message"),
		formatCount(p.Keys, "key"))
	if p.Refused > 0 {
		text += fmt.Sprintf(" %d would be refused (--force replays them).", p.Refused)
	}

	if p.MissingContract > 0 {
		text += fmt.Sprintf(" %d would wait, because weir.yaml lacks their contract.",
			p.MissingContract)
	}

	if took := time.Duration(p.EstimatedSeconds * float64(time.Second)).Round(time.Second); took >
		0 {
		text += fmt.Sprintf(" The replay would take %s.", took)
	}

	a.printLine("%s", text)

	return nil
}

func (s *console) askConfirmation(ctx context.Context, question string) (bool, error) {
	if !isTerminal(s.stdin) {
		return false, &usageError{"there is no terminal to ask at: add --yes"}
	}

	fmt.Fprintf(s.stderr, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() {
		// after an error, line is the text read so far
		line, _ := bufio.NewReader(s.stdin).ReadString('\n')
		answer <- line
	}()

	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case line := <-answer:
		line = strings.ToLower(strings.TrimSpace(line))
		return line == "y" || line == "yes", nil
	}
}

func (a *apiCommand) printJob(job remote.Answer[wire.Job]) error {
	if a.json {
		a.printLine("%s", job.JSON)
		return nil
	}

	j := job.Value
	skipped, otherwise := "", ""
	if j.Skipped > 0 {
		skipped = fmt.Sprintf(", %d not dead any more", j.Skipped)
	}

	if j.Otherwise > 0 {
		otherwise = fmt.Sprintf(", %d superseded, cancelled or gone", j.Otherwise)
	}

	a.printLine("Replay %s is %s%s: %d matched, %d replayed, %d refused%s; %d delivered, %d dead again%s, %d waiting.",
		sanitizeText(j.ID), sanitizeText(string(j.State)), afterColon(j.StopReason), j.Matched,
		j.Replayed, j.Refused,
		skipped, j.Delivered, j.DeadAgain, otherwise, j.Waiting)

	return nil
}

func (a *apiCommand) watchJob(ctx context.Context, job remote.Answer[wire.Job]) error {
	patience, last, reported := a.newPatience(unavailableLimit), job, ""
	for {
		if !job.Value.IsRunning() {
			return errors.Join(a.printJob(job), jobError(&job.Value))
		}

		if !bytes.Equal(job.JSON, last.JSON) && !a.json {
			if err := a.printJob(job); err != nil {
				return err
			}
		} else if !a.json && job.Value.Waiting > 0 {
			reported = a.printHoldUp(ctx, &job.Value, reported)
		}

		last = job
		if !clock.Sleep(ctx, a.pollInterval) {
			return ctx.Err()
		}

		err := patience.Do(ctx, func(ctx context.Context) error {
			var err error
			job, err = a.client.Job(ctx, last.Value.ID)
			return err
		})
		if err != nil {
			return err
		}
	}
}

// printHoldUp prints why the messages of a replay wait, if lanes send nothing and the reasons are
// not those in the parameter "reported". It returns the present reasons. If the lanes cannot be
// read, it prints nothing.
func (a *apiCommand) printHoldUp(ctx context.Context, j *wire.Job, reported string) string {
	lanes, err := a.client.Lanes(ctx)
	if err != nil {
		return reported
	}

	reasons := ""
	for _, l := range lanes.Value.Lanes {
		if l.PausedBy != "" && (j.Filter.Lane == nil || *j.Filter.Lane == l.Number) {
			reasons += fmt.Sprintf("Waiting: lane %d %s%s.%s\n", l.Number, describePause(&l),
				afterColon(l.PauseReason), describePauseEnd(&l))
		}
	}

	// The time of the next try changes each few seconds, and alone is no news.
	if describeHoldUps(reasons) != describeHoldUps(reported) && reasons != "" {
		fmt.Fprint(a.stdout, reasons)
	}

	return reasons
}

// describeHoldUps returns reasons without the ends of the pauses.
func describeHoldUps(reasons string) string { return pauseEnds.ReplaceAllString(reasons, "") }

var pauseEnds = regexp.MustCompile(` (Next try|It ends) at [^\n]*`)

func describePause(l *wire.Lane) string {
	switch l.PausedBy {
	case "cms":
		if l.HasFewRefused {
			return fmt.Sprintf("pauses, because the CMS does not take %s",
				formatCount(l.RefusedKeys, "key"))
		}
		return "is paused, because the CMS is unavailable"

	case "calendar":
		return "is closed by the calendar"
	}

	return "is paused by an operator"
}

func describePauseEnd(l *wire.Lane) string {
	switch {
	case l.PausedUntil.IsZero():
		return ""
	case l.PausedBy == "cms":
		return " Next try at " + formatTime(l.PausedUntil) + "."
	}
	return " It ends at " + formatTime(l.PausedUntil) + "."
}

// jobError returns nil if the replay is done and no message died again.
func jobError(j *wire.Job) error {
	switch {
	case j.State != wire.JobDone:
		return fmt.Errorf("the replay was %s", sanitizeText(string(j.State)))
	case j.DeadAgain > 0:
		return fmt.Errorf("dead again: %s", formatCount(j.DeadAgain, "message"))
	}
	return nil
}
