package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"weir/internal/app"
)

const copyHelp = `Moves everything that is stored from a folder of weir serve to a storage account, or back. The word
azure names the account of AzureWebJobsStorage and WEIR_PREFIX; any other name is that of a folder.

  weir copy --from /var/lib/weir --to azure
  weir copy --from azure --to /var/lib/weir

Stop weir serve and the app first. The target must be empty. Ids, the order of messages, due times,
dead messages and schedules stay as they are. At the end the command reads both stores, compares all
that is stored, and prints the numbers and hashes. From then on only the target can be used.

If the command is killed, run it again: it goes on. Until it is done, neither store can be used, and
--undo gives the copy up: the source can be used again then, and the half copy never. Once everything
is copied, --undo is refused; if the command was killed at that moment, run it again. From then on
the way back is a copy to another empty folder or WEIR_PREFIX. docs/without-azure.md has the steps.`

type copyFlags struct {
	from, to                string
	isUndo, verbose, asJSON bool
}

func newCopyCommand(s *console) *cobra.Command {
	f := copyFlags{}
	cmd := &cobra.Command{
		Use:   "copy --from DIR --to azure",
		Short: "Move everything from a folder to a storage account, or back",
		Long:  copyHelp,
		Args:  cobra.NoArgs,
	}

	flags := cmd.Flags()
	flags.StringVar(&f.from, "from", "", "the store to leave: a folder, or azure")
	flags.StringVar(&f.to, "to", "", "the empty store to move to: a folder, or azure")
	flags.BoolVar(&f.isUndo, "undo", false, "give up a copy that is not done; needs --from alone")
	addVerboseFlag(cmd, &f.verbose)
	addJSONFlag(cmd, &f.asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		return asFailure(s.runCopy(cmd.Context(), f), false)
	}

	return cmd
}

func (f copyFlags) check() error {
	isFromAzure, isToAzure := f.from == app.AzurePlace, f.to == app.AzurePlace
	switch {
	case f.from == "":
		return &usageError{"name the store to leave: --from DIR, or --from azure"}
	case f.isUndo && f.to != "":
		return &usageError{"--undo needs --from alone"}
	case f.isUndo:
		return nil
	case f.to == "":
		return &usageError{"name the store to move to: --to azure, or --to DIR"}
	case isFromAzure == isToAzure:
		return &usageError{"one of --from and --to is azure, and the other one a folder; weir backup and " +
			"weir restore copy a folder to another one"}
	}

	return nil
}

func (s *console) runCopy(ctx context.Context, f copyFlags) error {
	progress := s.stdout
	if f.asJSON {
		progress = s.stderr
	}

	level := slog.LevelWarn
	if f.verbose {
		level = slog.LevelDebug
	}

	o := app.CopyOptions{From: f.from, To: f.to,
		Progress: func(text string) { fmt.Fprintln(progress, text) },
		Log:      slog.New(slog.NewJSONHandler(s.stderr, &slog.HandlerOptions{Level: level}))}
	if f.isUndo {
		return app.UndoCopy(ctx, s.env, o)
	}

	r, err := app.CopyStore(ctx, s.env, o)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("interrupted; neither store can be used until the same command is run again, or --undo: %w",
			err)
	case err != nil:
		return err
	case f.asJSON:
		return s.printJSON(copyOutput{sumOutput(r.Rows), sumOutput(r.Bodies), sumOutput(r.Files)})
	}

	for name, sum := range r.Kinds() {
		s.printLine("%-7s %d, %d bytes, SHA-256 %s in both", name, sum.Count, sum.Bytes, sum.Hash)
	}

	s.printLine("Everything is in %s now. Start Weir there; %s cannot be used any more.",
		f.to, f.from)

	return nil
}

type copyOutput struct {
	Rows   sumOutput `json:"rows"`
	Bodies sumOutput `json:"bodies"`
	Files  sumOutput `json:"files"`
}

type sumOutput struct {
	Count int64  `json:"count"`
	Bytes int64  `json:"bytes"`
	Hash  string `json:"sha256"`
}
