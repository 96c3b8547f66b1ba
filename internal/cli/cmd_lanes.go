package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/app"
	"weir/internal/lane/epochs"
	"weir/internal/relane"
	"weir/internal/storage"
)

const lanesHelp = `Shows the number of lanes, or changes it to N. The setting 'lanes' has no effect on the change:
deploy it before the command, or after it.

From the start of a change until a handler with the new setting runs, posts are answered 503. The
lanes run empty; scheduled and dead messages move to the new lanes. A change that was interrupted
or killed stays under way: run the same command again to finish it. Or give the change up with
--undo, before the new number is in force. docs/lanes.md has the details.`

func newLanesCommand(s *console) *cobra.Command {
	var undo, verbose, asJSON bool
	cmd := &cobra.Command{Use: "lanes [N]", Short: "Show or change the number of lanes", Long: lanesHelp,
		Args: cobra.MaximumNArgs(1)}
	cmd.Flags().BoolVar(&undo, "undo", false, "give up a change that is under way")
	addVerboseFlag(cmd, &verbose)
	addJSONFlag(cmd, &asJSON)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w; give N or --undo", err) })
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n, err := parseLanes(args, undo)
		if err != nil {
			return err
		}
		a, err := s.openApp(cmd.Context(), verbose)
		if err != nil {
			return asFailure(err, false)
		}
		defer a.Close(cmd.Context())
		return asFailure(s.runLanes(cmd.Context(), a, lanesOptions{n, undo, asJSON}), false)
	}
	return cmd
}

// parseLanes returns the argument N, or 0 if N is not given.
func parseLanes(args []string, undo bool) (int, error) {
	switch {
	case len(args) == 0:
		return 0, nil
	case undo:
		return 0, errors.New("give N or --undo, not both")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", args[0])
	}
	if n < 1 || n > epochs.MaxLanes {
		return 0, fmt.Errorf("%w, and not %d", relane.ErrNumber, n)
	}
	return n, nil
}

type lanesOptions struct {
	n            int // new number of lanes; 0 = not given
	undo, asJSON bool
}

func (s *console) runLanes(ctx context.Context, a *app.App, o lanesOptions) error {
	if err := a.PrepareStorage(ctx); err != nil {
		return fmt.Errorf("storage cannot be reached: %w", err)
	}
	progress := s.stdout
	if o.asJSON {
		progress = s.stderr
	}
	change := a.NewResharder(func(text string) { fmt.Fprintln(progress, text) })
	var err error
	switch {
	case o.undo:
		a.RecordCommand(ctx, "lanes.undo", nil)
		err = change.Undo(ctx)
	case o.n > 0:
		if closed, reason, until := a.ClosedUntil(); closed {
			fmt.Fprintf(progress, "The calendar is closed (%s) until %s: what waits is not sent before, "+
				"and the change waits for it.\n", reason, until.Format(time.RFC3339))
		}
		a.RecordCommand(ctx, "lanes.change", map[string]any{"lanes": o.n})
		err = change.Run(ctx, o.n)
	case !o.asJSON:
		return s.printLanes(ctx, change, a.Lanes())
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted; the change stays under way until the same command is run again, "+
			"or --undo: %w", err)
	}
	if err == nil && o.asJSON {
		return s.printLanesJSON(ctx, change, a.Lanes())
	}
	return err
}

func (s *console) printLanes(ctx context.Context, change relane.Resharder, setting int) error {
	meta, err := epochs.Read(ctx, change.Store.Table)
	if storage.Is(err, storage.NotFound) {
		fmt.Fprintf(s.stdout, "Storage has not been used yet. The setting says lanes: %d.\n", setting)
		return nil
	}
	if err != nil {
		return err
	}
	s.printLine("Lanes: %d (epoch %d). The setting says lanes: %d.", meta.Open.Lanes, meta.Open.Number, setting)
	switch meta.Step {
	case epochs.StepNone:
	case epochs.StepUndo:
		s.printLine("A change to %d lanes is being undone: finish that with `weir lanes --undo`.", meta.Next.Lanes)
	case epochs.StepCount:
		s.printLine("The change to %d lanes is in force and all but done: finish it with `weir lanes %d`.",
			meta.Open.Lanes, meta.Open.Lanes)
	default:
		s.printLine("A change to %d lanes is under way (%s): finish it with `weir lanes %d`, "+
			"or give it up with `weir lanes --undo`.", meta.Next.Lanes, meta.Step, meta.Next.Lanes)
	}
	for _, e := range meta.Earlier {
		s.printLine("Epoch %d with %d lanes is kept until the retention of its messages is over.", e.Number, e.Lanes)
	}
	return nil
}

// lanesOutput is the JSON output. Lanes and Epoch are 0 if storage has not been used yet.
type lanesOutput struct {
	Lanes   int            `json:"lanes"`
	Epoch   int            `json:"epoch"`
	Setting int            `json:"setting"`
	Change  *changeOutput  `json:"change,omitempty"`
	Earlier []epochs.Epoch `json:"earlier,omitempty"` // earlier epochs that still have messages, oldest first
}

type changeOutput struct {
	Step  epochs.Step `json:"step"`
	Lanes int         `json:"lanes"`
}

func (s *console) printLanesJSON(ctx context.Context, change relane.Resharder, setting int) error {
	meta, err := epochs.Read(ctx, change.Store.Table)
	if err != nil && !storage.Is(err, storage.NotFound) {
		return err
	}
	state := lanesOutput{Lanes: meta.Open.Lanes, Epoch: meta.Open.Number, Setting: setting, Earlier: meta.Earlier}
	switch meta.Step {
	case epochs.StepNone:
	case epochs.StepCount: // meta.Open already has the new number
		state.Change = &changeOutput{meta.Step, meta.Open.Lanes}
	default:
		state.Change = &changeOutput{meta.Step, meta.Next.Lanes}
	}
	return s.printJSON(state)
}
