package cli

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"weir/internal/remote"
	"weir/internal/wire"
)

const (
	schedulesHelp = `Lists, creates, pauses and deletes schedules, which repeat messages. docs/time.md describes them.
The commands need the key of the function schedules.`

	nextRunsHelp = `Prints the next runs of a schedule, in UTC and in its time zone, and the local times that changes of
clocks skip or double.`

	runScheduleHelp = `Stores a message of a schedule now, also if the schedule is paused. Its next run stays as it is.`

	deleteScheduleHelp = `Deletes a schedule. Messages that it has stored stay: cancel those that are not to
be delivered.`
)

func newSchedulesCommand(s *console) *cobra.Command {
	a := &apiCommand{console: s}
	cmd := &cobra.Command{Use: "schedules", Short: "List, create, pause and delete schedules",
		Long: schedulesHelp, Args: refuseUnknownCommand,
		RunE: func(*cobra.Command, []string) error {
			return &usageError{"give list, next, create, pause, resume, run or delete"}
		}}

	a.addFlags(cmd)
	cmd.AddCommand(newListSchedulesCommand(a), newNextRunsCommand(a), newCreateScheduleCommand(a),
		a.newSetPausedCommand("pause NAME", "Pause a schedule", (*remote.Client).PauseSchedule),
		a.newSetPausedCommand("resume NAME",
			"Resume a schedule; Weir does not make up for the runs in the pause",
			(*remote.Client).ResumeSchedule),
		newRunScheduleCommand(a), newDeleteScheduleCommand(a))

	for _, each := range cmd.Commands() {
		if each.Long == "" {
			each.Long = each.Short + "."
		}
		each.Long += "\n\n" + exitHelp
	}

	return cmd
}

func newListSchedulesCommand(a *apiCommand) *cobra.Command {
	var file exportFlag
	cmd := &cobra.Command{Use: "list", Short: "List all schedules", Args: cobra.NoArgs}
	file.addFlag(cmd)
	cmd.RunE = a.wrapRun(func(ctx context.Context, _ []string) error {
		if file.isGiven() {
			return file.printList(ctx, a, cmd, "/schedules", url.Values{}, 0)
		}

		list, err := a.client.Schedules(ctx)
		if err != nil {
			return err
		}

		if a.json {
			a.printLine("%s", list.JSON)
			return nil
		}

		rows := [][]string{{"NAME", "RUNS", "TIME ZONE", "NEXT", "LAST", "LAST MESSAGE",
			"LAST REFUSAL"}}

		for _, each := range list.Value.Schedules {
			rows = append(rows, []string{each.Name, each.Cron, each.TimeZone, describeNextRun(each),
				formatTime(each.State.LastDueAt), each.State.LastMessageID, each.State.Refusal})
		}

		return a.printRows(rows, "No schedules.", true)
	})

	return cmd
}

func describeNextRun(s wire.Schedule) string {
	switch {
	case s.Paused:
		return "paused"
	case s.State.NextAt == nil:
		return "over"
	}
	return formatTime(*s.State.NextAt)
}

func newNextRunsCommand(a *apiCommand) *cobra.Command {
	var count int
	cmd := &cobra.Command{Use: "next NAME", Short: "Print the next runs of a schedule",
		Long: nextRunsHelp, Args: requireScheduleName(1, 1, "a schedule's name")}
	cmd.Flags().IntVar(&count, "count", 20, "runs, 1 to 200")
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		preview, err := a.client.PreviewSchedule(ctx, args[0], count)
		return a.printRuns(preview, err)
	})

	return cmd
}

// printRuns prints future runs, and the local times that a clock change (daylight saving time)
// skips or repeats.
func (a *apiCommand) printRuns(preview remote.Answer[wire.SchedulePreview], err error) error {
	if err != nil {
		return err
	}

	if a.json {
		a.printLine("%s", preview.JSON)
		return nil
	}

	rows := [][]string{{"DUE", "LOCAL TIME"}}
	for _, run := range preview.Value.Runs {
		rows = append(rows, []string{formatTime(run.DueAt), run.LocalTime + run.Offset})
	}

	if err := a.printRows(rows, "No run follows: the schedule is over.", true); err != nil {
		return err
	}

	for _, changes := range [][]wire.ClockChange{preview.Value.Skipped, preview.Value.Doubled} {
		for _, change := range changes {
			a.printLine("%s: %s.", sanitizeText(change.LocalTime), sanitizeText(change.Note))
		}
	}

	return nil
}

// newSetPausedCommand returns a command that calls the function "set" to pause or resume a
// schedule.
func (a *apiCommand) newSetPausedCommand(use, short string,
	set func(c *remote.Client, ctx context.Context,
		name string) (remote.Answer[wire.Schedule], error)) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short,
		Args: requireScheduleName(1, 1, "a schedule's name")}
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		stored, err := set(a.client, ctx, args[0])
		return a.printSchedule(stored, err)
	})

	return cmd
}

func (a *apiCommand) printSchedule(stored remote.Answer[wire.Schedule], err error) error {
	switch {
	case err != nil:
		return err
	case a.json:
		a.printLine("%s", stored.JSON)
	default:
		a.printLine("Schedule %s, next run: %s.", sanitizeText(stored.Value.Name),
			describeNextRun(stored.Value))
	}

	return nil
}

func newRunScheduleCommand(a *apiCommand) *cobra.Command {
	cmd := &cobra.Command{Use: "run NAME", Short: "Store a message of a schedule now",
		Long: runScheduleHelp, Args: requireScheduleName(1, 1, "a schedule's name")}
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		receipt, err := a.client.RunSchedule(ctx, args[0])
		switch {
		case err != nil:
			return err
		case a.json:
			a.printLine("%s", receipt.JSON)
		default:
			a.printLine("Message %s is stored.", sanitizeText(receipt.Value.ID))
		}

		return nil
	})

	return cmd
}

func newDeleteScheduleCommand(a *apiCommand) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{Use: "delete NAME", Short: "Delete a schedule", Long: deleteScheduleHelp,
		Args: requireScheduleName(1, 1, "a schedule's name")}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		if !yes {
			question := fmt.Sprintf("Delete the schedule %s?", sanitizeText(args[0]))
			if agreed, err := a.askConfirmation(ctx, question); err != nil || !agreed {
				return err
			}
		}

		deleted, err := a.client.DeleteSchedule(ctx, args[0])
		switch {
		case err != nil:
			return err
		case a.json:
			a.printLine("%s", deleted.JSON)
		default:
			a.printLine("Schedule %s is deleted.", sanitizeText(args[0]))
		}

		return nil
	})

	return cmd
}
