package cli

import (
	"context"
	"errors"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"weir/internal/remote"
	"weir/internal/weir"
	"weir/internal/wire"
)

const createScheduleHelp = `Creates a schedule. Its message is either a file in UTF-8 (- is
standard input) or a copy of a stored message (--message-id). In a file, {{.DueAt}} stands for the
time of a run, and {{.Run}} for its number. A schedule that exists is replaced only with --replace.
--dry-run checks the definition and prints the next runs; it stores nothing.

  weir schedules create nightly report.xml --cron '30 2 * * *' --time-zone Europe/Berlin`

// previewedRuns is the number of runs that --dry-run prints.
const previewedRuns = 10

type scheduleFlags struct {
	wire.ScheduleDefinition
	start, end      string
	replace, dryRun bool
}

func newCreateScheduleCommand(a *apiCommand) *cobra.Command {
	f := &scheduleFlags{}
	cmd := &cobra.Command{Use: "create NAME [FILE]", Short: "Create or replace a schedule",
		Long: createScheduleHelp,
		Args: requireScheduleName(1, 2, "a schedule's name, and the file of its message")}
	flags := cmd.Flags()
	flags.StringVar(&f.Cron, "cron", "",
		"when it runs, like '30 2 * * *', @hourly or '@every 90m' (required)")
	flags.StringVar(&f.TimeZone, "time-zone", "", "of --cron, like Europe/Berlin; UTC without it")
	flags.StringVar(&f.MessageID, "message-id", "",
		"copy the message with this id, in place of a file")
	flags.StringVar(&f.ContentType, "content-type", "",
		"of the message; without it application/xml, or that of the copied message")
	flags.StringVar(&f.Overlap, "overlap", "",
		"queue (the default) or skip a run while the message of the run before is not final")
	flags.StringVar(&f.Missed, "missed", "",
		"make up for one (the last, the default), all or none of the runs missed while no process ran")
	flags.StringVar(&f.start, "start", "",
		"no run before this time, like 2026-01-31T08:00:00+01:00")
	flags.StringVar(&f.end, "end", "", "no run from this time on")
	flags.BoolVar(&f.Paused, "paused", false, "create it paused")
	flags.BoolVar(&f.replace, "replace", false, "replace a schedule of this name")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only check it, and print the next runs")
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		d, err := f.readDefinition(ctx, a.console, args[1:])
		if err != nil {
			return err
		}

		if f.dryRun {
			preview, err := a.client.TryDefinition(ctx, args[0], d, previewedRuns)
			return a.printRuns(preview, err)
		}

		stored, err := a.client.PutSchedule(ctx, args[0], d, f.replace)
		var refused *remote.Error
		if errors.As(err, &refused) && refused.Status == http.StatusPreconditionFailed {
			refused.Message = "a schedule of this name exists: add --replace to replace it"
		}

		return a.printSchedule(stored, err)
	})

	return cmd
}

// readDefinition builds the definition from the flags and the file of the message. The parameter
// "files" has at most one name.
func (f *scheduleFlags) readDefinition(ctx context.Context, s *console,
	files []string) (wire.ScheduleDefinition, error) {
	d := f.ScheduleDefinition
	var err error
	if d.MessageID != "" {
		if d.MessageID, err = parseMessageID(d.MessageID); err != nil {
			return d, err
		}
	}

	switch {
	case d.Cron == "":
		return d, &usageError{"--cron is needed"}
	case (d.MessageID == "") == (len(files) == 0):
		return d, &usageError{"give either the file of the message or --message-id"}
	case len(files) == 1:
		text, err := s.readMessageText(ctx, files[0])
		if err != nil {
			return d, err
		}
		d.Message = &text
	}

	if d.Start, err = parseOptionalMoment("start", f.start); err == nil {
		d.End, err = parseOptionalMoment("end", f.end)
	}

	return d, err
}

// readMessageText reads a message from a file. The message must be UTF-8, because the request
// contains the text as a JSON string.
func (s *console) readMessageText(ctx context.Context, file string) (string, error) {
	body, err := s.readContent(ctx, file)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", &usageError{"the message cannot be read: " + err.Error()}
	case len(body) == 0:
		return "", &usageError{file + " is empty"}
	case !utf8.Valid(body):
		return "", &usageError{file +
			" is not UTF-8: send it as a message, and give its id as --message-id"}
	}

	return string(body), nil
}

func parseOptionalMoment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}

	t, err := weir.ParseMoment(text)
	if err != nil {
		return time.Time{}, &usageError{"--" + name + ": " + err.Error()}
	}

	return t, nil
}
