package cli

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/remote"
	"weir/internal/weir"
	"weir/internal/wire"
)

const (
	pauseHelp = `Stops writes to the CMS: all of them, those of a lane, or those of an ordering key. Messages are
still accepted. A write in flight is finished. The pause takes effect within about a second, and
lasts until it is resumed, or until the given time or duration is over.`

	resumeHelp = `Ends pauses. The pause of a CMS that was unavailable ends, too: the next message is tried at once.
The command then lists the remaining pauses.`

	pausesHelp = `Lists the pauses of operators, the lanes that wait because the CMS is unavailable or refuses
everything, and the state of the calendar. With --json the lanes that wait are not in the list: GET
/api/lanes has them.`
)

type pauseTarget struct {
	all  bool
	lane int
	key  string
}

func (t *pauseTarget) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&t.all, "all", false, "all lanes")
	cmd.Flags().IntVar(&t.lane, "lane", 0, "this lane")
	cmd.Flags().StringVar(&t.key, "key", "", "this ordering key")
	cmd.MarkFlagsMutuallyExclusive("all", "lane", "key")
}

func (t *pauseTarget) readTarget(cmd *cobra.Command) (remote.Target, error) {
	key, err := readKeyFlag(cmd, t.key)
	switch {
	case key != nil || err != nil:
		return remote.Target{Key: key}, err
	case cmd.Flags().Changed("lane") && t.lane >= 0:
		return remote.Target{Lane: &t.lane}, nil
	case t.all:
		return remote.Target{All: true}, nil
	}

	return remote.Target{}, &usageError{"give --all, --lane N or --key K"}
}

func newPauseCommand(s *console) *cobra.Command {
	a := &apiCommand{console: s}
	var t pauseTarget
	var p remote.PauseRequest
	var length time.Duration
	cmd := &cobra.Command{Use: "pause", Short: "Stop writes to the CMS for a while",
		Long: pauseHelp, Args: cobra.NoArgs}
	a.addFlags(cmd)
	t.addFlags(cmd)
	cmd.Flags().StringVar(&p.Reason, "reason", "", "why, for other operators (required)")
	addDurationFlag(cmd.Flags(), &length, "for", 0, "how long, like 90s, 30m or 2h")
	cmd.Flags().StringVar(&p.Until, "until", "", "until when, like 2026-01-31T08:00:00+01:00")
	cmd.MarkFlagsMutuallyExclusive("for", "until")
	cmd.RunE = a.wrapRun(func(ctx context.Context, _ []string) error {
		var err error
		if p.Target, err = t.readTarget(cmd); err != nil {
			return err
		}

		switch {
		case p.Reason == "":
			return &usageError{"--reason is needed"}
		case cmd.Flags().Changed("for") && length <= 0:
			return &usageError{"--for must be more than nothing"}
		case length > 0:
			p.For = length.String()
		case p.Until != "":
			if _, err := weir.ParseMoment(p.Until); err != nil {
				return &usageError{"--until: " + err.Error()}
			}
		}

		list, err := a.client.Pause(ctx, p)

		return a.printPauses(list, nil, err)
	})

	return cmd
}

func newResumeCommand(s *console) *cobra.Command {
	a := &apiCommand{console: s}
	var t pauseTarget
	cmd := &cobra.Command{Use: "resume", Short: "End pauses", Long: resumeHelp, Args: cobra.NoArgs}
	a.addFlags(cmd)
	t.addFlags(cmd)
	cmd.RunE = a.wrapRun(func(ctx context.Context, _ []string) error {
		what, err := t.readTarget(cmd)
		if err != nil {
			return err
		}
		list, err := a.client.Resume(ctx, what)
		return a.printPauses(list, nil, err)
	})

	return cmd
}

func newPausesCommand(s *console) *cobra.Command {
	a := &apiCommand{console: s}
	cmd := &cobra.Command{Use: "pauses", Short: "List pauses", Long: pausesHelp, Args: cobra.NoArgs}
	a.addFlags(cmd)
	cmd.RunE = a.wrapRun(func(ctx context.Context, _ []string) error {
		list, err := a.client.Pauses(ctx)
		if err != nil || a.json {
			return a.printPauses(list, nil, err)
		}
		lanes, err := a.client.Lanes(ctx)
		return a.printPauses(list, lanes.Value.Lanes, err)
	})

	return cmd
}

// printPauses prints the pauses of operators, the given lanes that wait for the CMS, and the state
// of the calendar. With --json it prints only the JSON of list.
func (a *apiCommand) printPauses(list remote.Answer[wire.PauseList], lanes []wire.Lane,
	err error) error {
	if err != nil {
		return err
	}

	if a.json {
		a.printLine("%s", list.JSON)
		return nil
	}

	rows := [][]string{{"PAUSED", "BY", "SINCE", "UNTIL", "REASON"}}
	for _, p := range list.Value.Pauses {
		what := "lane " + strconv.Itoa(p.Lane)
		if p.Scope == "key" {
			what = "key " + p.Key + " (lane " + strconv.Itoa(p.Lane) + ")"
		}

		until := "until resumed"
		if !p.Until.IsZero() {
			until = formatTime(p.Until)
		}

		rows = append(rows, []string{what, cmp.Or(p.By, "unknown"), formatTime(p.Since),
			until, p.Reason})
	}

	for _, l := range lanes {
		if l.PausedBy == "cms" {
			rows = append(rows,
				[]string{"lane " + strconv.Itoa(l.Number), "the CMS", formatTime(l.LastErrorAt),
					formatTime(l.PausedUntil), l.PauseReason})
		}
	}

	if len(rows) > 1 {
		a.printTable(rows)
	} else {
		a.printLine("Nothing is paused.")
	}

	switch c := list.Value.Calendar; {
	case c == nil:
	case c.Closed:
		a.printLine("The calendar is closed until %s%s.", formatTime(c.Until), afterColon(c.Reason))
	case !c.NextChange.IsZero():
		a.printLine("The calendar closes at %s.", formatTime(c.NextChange))
	}

	return nil
}
