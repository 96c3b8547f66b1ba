package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/weir"
	"weir/internal/wire"
)

const discardHelp = `Discards dead messages that are never to be written: those with the given IDs, those that match all
given flags, or --all. A discarded message is never sent again. It stays, with its history and the
reason, until its retention is over. This cannot be undone.

The command needs a reason, and asks on the terminal before it discards; with --yes it does not
ask. If flags select the messages, it first counts them; with --dry-run it then stops. A moment is
a time like 2026-01-31T08:00:00Z, or how long ago it was, like 24h. If the command breaks off, call
it again: a repeat does no harm.`

type discardFlags struct {
	deadFilter
	all, dryRun, yes bool
	reason           string
}

func newDiscardCommand(s *console) *cobra.Command {
	a := &apiCommand{console: s}
	f := &discardFlags{}
	cmd := &cobra.Command{Use: "discard [ID…]", Short: "Give dead messages up for good",
		Long: discardHelp}
	a.addFlags(cmd)
	f.addFlags(cmd)
	cmd.Flags().BoolVar(&f.all, "all", false, "all dead messages")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only count")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	cmd.Flags().StringVar(&f.reason, "reason", "", "the reason, stored with each message; needed")
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		if err := f.checkFlags(args); err != nil {
			return err
		}

		if len(args) > 0 {
			ids, err := parseMessageIDs(args)
			if err != nil {
				return err
			}
			return a.discardByID(ctx, ids, f)
		}

		return a.discardMatching(ctx, f)
	})

	return cmd
}

func (f *discardFlags) checkFlags(ids []string) error {
	given := func(names []string) string {
		for _, n := range names {
			if f.cmd.Flags().Changed(n) {
				return n
			}
		}
		return ""
	}

	condition := given(filterFlags[:len(filterFlags)-1])
	switch {
	case len(ids) > 0:
		if name := given(append(slices.Clone(filterFlags), "dry-run")); name != "" {
			return &usageError{"--" + name + " does not go with IDs"}
		}

	case condition == "" && !f.all:
		return &usageError{"say which: IDs, or flags, or --all"}
	case condition != "" && f.all:
		return &usageError{"--all does not go with --" + condition}
	}

	if !f.dryRun && strings.TrimSpace(f.reason) == "" {
		return &usageError{"give the --reason: a discarded message cannot be brought back, and others will ask"}
	}

	return nil
}

func (a *apiCommand) discardByID(ctx context.Context, ids []string, f *discardFlags) error {
	if !f.yes {
		question := fmt.Sprintf("Discard %s for good?", formatCount(len(ids), "dead message"))
		if yes, err := a.askConfirmation(ctx, question); err != nil || !yes {
			return err
		}
	}

	return a.changeEach(ctx, ids, func(id string) (json.RawMessage, string, error) {
		m, err := a.client.Discard(ctx, id, f.reason)
		if m.Value.Stage == weir.Discarded {
			return m.JSON, id + " is discarded.", err
		}
		return m.JSON, id + ": discard requested.", err
	})
}

func (a *apiCommand) discardMatching(ctx context.Context, f *discardFlags) error {
	selected, err := f.readFilter()
	if err != nil {
		return err
	}

	filter := wire.DiscardFilter{All: f.all, DeadFilter: selected}
	return bulkChange[wire.DiscardFilter]{
		name: "discard", verb: "Discard", kind: "dead message", suffix: " for good",
		wouldBe: "discarded",
		done:    "discarded", send: a.client.DiscardMany, isWithoutQuestion: f.yes,
		isDryRun: f.dryRun,
		reason:   f.reason,
		endAt: func(to time.Time) wire.DiscardFilter {
			if filter.To == nil {
				filter.To, filter.All = &to, false
			}
			return filter
		}}.run(ctx, a, filter)
}
