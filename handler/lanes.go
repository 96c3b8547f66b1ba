package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"weir/internal/lane"
	"weir/internal/relane"
	"weir/internal/storage"
)

var errLanesUsage = errors.New("usage: handler lanes        shows the number of lanes\n" +
	"       handler lanes N      changes it to N\n" +
	"       handler lanes --undo gives up a change that is under way")

// lanesCommand shows or changes the number of lanes; docs/lanes.md has the procedure. The
// setting `lanes` plays no part in it.
func lanesCommand(ctx context.Context, args []string, env func(string) string, out io.Writer) error {
	err := runLanes(ctx, args, env, out)
	if err != nil {
		fmt.Fprintln(out, "handler lanes:", err)
	}
	return err
}

func runLanes(ctx context.Context, args []string, env func(string) string, out io.Writer) error {
	n, undo, err := lanesArgs(args)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	p, err := NewProgram(env, log)
	if err != nil {
		return err
	}
	if err := p.account.Ensure(ctx); err != nil {
		return fmt.Errorf("storage cannot be reached: %w", err)
	}
	change := p.relane(out)
	switch {
	case undo:
		err = change.Undo(ctx)
	case n > 0:
		err = change.Run(ctx, n)
	default:
		return showLanes(ctx, change, p.settings.Lanes, out)
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted; a change stays under way until it is finished (the same command again) or undone (--undo): %w", err)
	}
	return err
}

// lanesArgs reads the arguments; 0 = none.
func lanesArgs(args []string) (n int, undo bool, err error) {
	switch {
	case len(args) == 0:
		return 0, false, nil
	case len(args) > 1:
		return 0, false, errLanesUsage
	case args[0] == "--undo":
		return 0, true, nil
	}
	n, err = strconv.Atoi(args[0])
	if err != nil {
		return 0, false, fmt.Errorf("%q is not a number\n%w", args[0], errLanesUsage)
	}
	if n < 1 || n > lane.MaxLanes {
		return 0, false, fmt.Errorf("%w, and not %d", relane.ErrNumber, n)
	}
	return n, false, nil
}

// relane is a change, wired.
func (p *Program) relane(out io.Writer) relane.Config {
	s := p.settings
	return relane.Config{
		Store:  &lane.Store{Table: p.account.Table(), Bodies: p.account.Bodies(), Now: time.Now},
		Leases: p.account.Leases(), Lease: time.Duration(s.Lease), Settle: s.settle(), Log: p.log,
		Drainer:  func(store *lane.Store) relane.Drainer { return p.newDrainer(store, p.newBell(store)) },
		Progress: func(text string) { fmt.Fprintln(out, text) },
	}
}

// showLanes tells how things stand.
func showLanes(ctx context.Context, change relane.Config, setting int, out io.Writer) error {
	meta, err := change.Meta(ctx)
	if storage.Is(err, storage.NotFound) {
		fmt.Fprintf(out, "Storage has not been used yet. The setting says lanes: %d.\n", setting)
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Lanes: %d (epoch %d). The setting says lanes: %d.\n", meta.Open.Lanes, meta.Open.Epoch, setting)
	switch meta.Step {
	case lane.StepNone:
	case lane.StepUndo:
		fmt.Fprintf(out, "A change to %d lanes is being undone: finish that with `handler lanes --undo`.\n", meta.Next.Lanes)
	case lane.StepBooks:
		fmt.Fprintf(out, "The change to %d lanes is in force and all but done: finish it with `handler lanes %d`.\n", meta.Open.Lanes, meta.Open.Lanes)
	default:
		fmt.Fprintf(out, "A change to %d lanes is under way (%s): finish it with `handler lanes %d`, or give it up with `handler lanes --undo`.\n", meta.Next.Lanes, meta.Step, meta.Next.Lanes)
	}
	for _, e := range meta.Earlier {
		fmt.Fprintf(out, "Epoch %d with %d lanes is kept until the retention of its messages is over.\n", e.Epoch, e.Lanes)
	}
	return nil
}
