package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/app"
	"weir/internal/fold"
	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/relane"
	"weir/internal/storage"
)

const lanesHelp = `Shows the number of lanes and the folding of keys, or changes them. The settings 'lanes' and
'fold' have no effect on the change: deploy them before the command, or after it.

From the start of a change until a handler with the new setting runs, posts are answered 503. The
lanes run empty; scheduled and dead messages move to the new lanes. A change that was interrupted
or killed stays under way: run the same command again to finish it. Or give the change up with
--undo, before the new number is in force. docs/lanes.md has the details.

  weir lanes 8                           changes the number; the folding stays
  weir lanes --fold case,accents,nfc     changes the folding; the number stays
  weir lanes --fold none                 folds no longer`

func newLanesCommand(s *console) *cobra.Command {
	var undo, verbose, asJSON bool
	var folding string
	cmd := &cobra.Command{Use: "lanes [N]",
		Short: "Show or change the number of lanes, or the folding of keys",
		Long:  lanesHelp, Args: cobra.MaximumNArgs(1)}
	cmd.Flags().BoolVar(&undo, "undo", false, "give up a change that is under way")
	cmd.Flags().StringVar(&folding, "fold", "",
		"the folding of keys: case, accents and nfc, with commas, or none")
	addVerboseFlag(cmd, &verbose)
	addJSONFlag(cmd, &asJSON)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w; give N, --fold or --undo", err)
	})
	s.addDataFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target, err := parseTarget(args, folding, undo)
		if err != nil {
			return err
		}

		a, err := s.openApp(cmd.Context(), verbose)
		if err != nil {
			return asFailure(err, false)
		}
		defer a.Close(cmd.Context())

		return asFailure(s.runLanes(cmd.Context(), a, lanesOptions{target, undo, asJSON}), false)
	}

	return cmd
}

// parseTarget returns the lanes that the arguments name. The zero value = none are named.
func parseTarget(args []string, folding string, undo bool) (relane.Target, error) {
	var t relane.Target
	if undo && (len(args) > 0 || folding != "") {
		return t, errors.New("give N and --fold, or --undo, not both")
	}

	if folding != "" {
		rules, err := fold.ParseFlag(folding)
		if err != nil {
			return t, fmt.Errorf("--fold: %w, nor %s", err, fold.None)
		}
		t.Fold = &rules
	}

	if len(args) == 0 {
		return t, nil
	}

	n, err := strconv.Atoi(args[0])
	if err != nil {
		return t, fmt.Errorf("%q is not a number", args[0])
	}
	if n < 1 || n > epochs.MaxLanes {
		return t, fmt.Errorf("%w, and not %d", relane.ErrNumber, n)
	}

	t.Lanes = n

	return t, nil
}

type lanesOptions struct {
	target       relane.Target
	undo, asJSON bool
}

func (o lanesOptions) isChange() bool { return o.target != (relane.Target{}) }

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
	case o.isChange():
		if closed, reason, until := a.ClosedUntil(); closed {
			fmt.Fprintf(progress,
				"The calendar is closed (%s) until %s: what waits is not sent before, "+
					"and the change waits for it.\n", reason, until.Format(time.RFC3339))
		}

		detail := map[string]any{}
		if o.target.Lanes > 0 {
			detail["lanes"] = o.target.Lanes
		}

		if o.target.Fold != nil {
			detail["fold"] = o.target.Fold.Flag()
		}

		a.RecordCommand(ctx, "lanes.change", detail)
		err = change.Run(ctx, o.target)

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

func (s *console) printLanes(ctx context.Context, change relane.Resharder,
	setting epochs.Epoch) error {
	meta, err := epochs.Read(ctx, change.Store.Table)
	if storage.Is(err, storage.NotFound) {
		fmt.Fprintf(s.stdout, "Storage has not been used yet. The setting says lanes: %s.\n",
			setting)
		return nil
	}

	if err != nil {
		return err
	}

	if err := lane.CheckNotMoved(meta); err != nil {
		return err
	}

	s.printLine("Lanes: %s (epoch %d). The setting says lanes: %s.", meta.Open,
		meta.Open.Number, setting)

	if meta.Step == epochs.StepNone && !meta.Open.HasSameLanes(setting) {
		s.printLine("Weir does not start before both are the same: put lanes: %s into weir.yaml, or run `weir lanes %s`.",
			meta.Open, commandFor(setting))
	}

	switch meta.Step {
	case epochs.StepNone:
	case epochs.StepUndo:
		s.printLine("A change to %s is being undone: finish that with `weir lanes --undo`.",
			meta.Next.Describe())
	case epochs.StepCount:
		s.printLine("The change to %s is in force and all but done: finish it with `weir lanes %d`.",
			meta.Open.Describe(), meta.Open.Lanes)
	default:
		s.printLine("A change to %s is under way (%s): finish it with `weir lanes %d`, "+
			"or give it up with `weir lanes --undo`.", meta.Next.Describe(), meta.Step,
			meta.Next.Lanes)
	}

	for _, e := range meta.Earlier {
		s.printLine("Epoch %d with %s is kept until the retention of its messages is over.",
			e.Number, e.Describe())
	}

	return nil
}

// commandFor returns the arguments of weir lanes that lead to the lanes of an epoch.
func commandFor(e epochs.Epoch) string {
	return fmt.Sprintf("%d --fold %s", e.Lanes, e.Fold.Flag())
}

// lanesOutput is the JSON output. Lanes and Epoch are 0 if storage has not been used yet.
type lanesOutput struct {
	Lanes   int           `json:"lanes"`
	Epoch   int           `json:"epoch"`
	Setting int           `json:"setting"`
	Fold    fold.Rules    `json:"fold,omitempty"`
	Folding fold.Rules    `json:"foldSetting,omitempty"`
	Change  *changeOutput `json:"change,omitempty"`
	// earlier epochs that still have messages, oldest first
	Earlier []epochs.Epoch `json:"earlier,omitempty"`
}

type changeOutput struct {
	Step  epochs.Step `json:"step"`
	Lanes int         `json:"lanes"`
	Fold  fold.Rules  `json:"fold,omitempty"`
}

func (s *console) printLanesJSON(ctx context.Context, change relane.Resharder,
	setting epochs.Epoch) error {
	meta, err := epochs.Read(ctx, change.Store.Table)
	if err != nil && !storage.Is(err, storage.NotFound) {
		return err
	}

	if err := lane.CheckNotMoved(meta); err != nil {
		return err
	}

	state := lanesOutput{Lanes: meta.Open.Lanes, Fold: meta.Open.Fold, Epoch: meta.Open.Number,
		Setting: setting.Lanes, Folding: setting.Fold, Earlier: meta.Earlier}

	switch meta.Step {
	case epochs.StepNone:
	case epochs.StepCount: // meta.Open already has the new number
		state.Change = &changeOutput{meta.Step, meta.Open.Lanes, meta.Open.Fold}
	default:
		state.Change = &changeOutput{meta.Step, meta.Next.Lanes, meta.Next.Fold}
	}

	return s.printJSON(state)
}
