package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/weir"
	"weir/internal/wire"
)

const cancelHelp = `Cancels waiting messages: those with the given IDs, those that match all given flags, or --all.
With --batch the IDs are those of batches: parts that are not messages yet do not become messages.

A scheduled message is cancelled at once. The holder of its lane cancels a message that is queued
or retrying, unless it is sending the message already; the message's stage shows the result.

The command first counts the messages that match the flags; with --dry-run it then stops.
Otherwise it asks on the terminal before it cancels them; with --yes it does not ask. A moment is a
time like 2026-01-31T08:00:00Z, or how long ago it was, like 24h. If the command breaks off, call
it again: a repeat does no harm.`

type cancelFlags struct {
	cmd                     *cobra.Command
	all, dryRun, yes, batch bool
	key, prefix, contract   string
	stage, from, to, reason string
	lane                    int
}

func newCancelCommand(s *console) *cobra.Command {
	a := &apiCommand{console: s}
	f := &cancelFlags{}
	cmd := &cobra.Command{Use: "cancel [ID…]", Short: "Cancel messages that wait", Long: cancelHelp}
	f.cmd = cmd
	a.addFlags(cmd)
	cmd.Flags().BoolVar(&f.all, "all", false, "all messages that wait")
	cmd.Flags().BoolVar(&f.batch, "batch", false, "the IDs are those of batches")
	cmd.Flags().StringVar(&f.key, "key", "", "only messages of this ordering key")
	cmd.Flags().StringVar(&f.prefix, "key-prefix", "",
		"only messages whose ordering key begins with this")
	cmd.Flags().StringVar(&f.contract, "contract", "", "only messages of this contract")
	cmd.Flags().StringVar(&f.stage, "stage", "",
		"only messages of this stage: scheduled, queued or retrying")
	cmd.Flags().IntVar(&f.lane, "lane", 0, "only messages of this lane")
	cmd.Flags().StringVar(&f.from, "from", "", "only messages accepted from this moment on")
	cmd.Flags().StringVar(&f.to, "to", "",
		"only messages accepted before this moment (default: now)")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only count")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	cmd.Flags().StringVar(&f.reason, "reason", "", "the reason, for the audit list and the log")
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		if err := f.checkFlags(args); err != nil {
			return err
		}

		if f.batch {
			return a.cancelBatches(ctx, args)
		}

		if len(args) > 0 {
			ids, err := parseMessageIDs(args)
			if err != nil {
				return err
			}
			return a.cancelByID(ctx, ids, f.reason)
		}

		return a.cancelMatching(ctx, f)
	})

	return cmd
}

// waitingFlags are the flags that select messages, except --all.
var waitingFlags = []string{"key", "key-prefix", "contract", "stage", "lane", "from", "to"}

// checkFlags refuses flags that contradict each other or the IDs, and a call that selects no
// messages.
func (f *cancelFlags) checkFlags(ids []string) error {
	given := func(names []string) string {
		for _, n := range names {
			if f.cmd.Flags().Changed(n) {
				return n
			}
		}
		return ""
	}

	condition := given(waitingFlags)
	switch {
	case len(ids) > 0:
		if name := given(append([]string{"all", "dry-run", "yes"}, waitingFlags...)); name != "" {
			return &usageError{"--" + name + " does not go with IDs"}
		}
		if f.batch && f.cmd.Flags().Changed("reason") {
			return &usageError{"--reason does not go with --batch"}
		}

	case f.batch:
		return &usageError{"--batch needs the IDs of batches"}
	case condition == "" && !f.all:
		return &usageError{"say which: IDs, or flags, or --all"}
	case condition != "" && f.all:
		return &usageError{"--all does not go with --" + condition}
	case f.cmd.Flags().Changed("key") && f.cmd.Flags().Changed("key-prefix"):
		return &usageError{"give --key or --key-prefix"}
	}

	return nil
}

func (f *cancelFlags) readFilter() (wire.WaitingFilter, error) {
	out := wire.WaitingFilter{All: f.all, KeyPrefix: textOrNil(f.prefix),
		Contract: textOrNil(f.contract), Stage: textOrNil(f.stage)}
	if f.cmd.Flags().Changed("lane") {
		if f.lane < 0 {
			return out, &usageError{"--lane must be 0 or more"}
		}
		out.Lane = &f.lane
	}

	for name, text := range map[string]string{"key-prefix": f.prefix, "contract": f.contract,
		"stage": f.stage} {
		if f.cmd.Flags().Changed(name) && text == "" {
			return out, &usageError{"--" + name + " is empty"}
		}
	}

	var err error
	if out.Key, err = readKeyFlag(f.cmd, f.key); err != nil {
		return out, err
	}

	if out.From, err = parseTimeOrAge("from", f.from); err == nil {
		out.To, err = parseTimeOrAge("to", f.to)
	}

	return out, err
}

func (a *apiCommand) cancelByID(ctx context.Context, ids []string, reason string) error {
	return a.changeEach(ctx, ids, func(id string) (json.RawMessage, string, error) {
		m, err := a.client.Cancel(ctx, id, reason)
		if m.Value.Stage == weir.Cancelled {
			return m.JSON, id + " is cancelled.", err
		}
		return m.JSON, id + ": cancellation requested", err
	})
}

func (a *apiCommand) cancelBatches(ctx context.Context, ids []string) error {
	return a.changeEach(ctx, ids, func(id string) (json.RawMessage, string, error) {
		b, err := a.client.CancelBatch(ctx, id)
		if b.Value.State == wire.BatchCancelled {
			return b.JSON, fmt.Sprintf("Batch %s is cancelled; %d of %s are messages.", id,
				b.Value.Filed, formatCount(b.Value.Parts, "part")), err
		}
		return b.JSON, fmt.Sprintf("Batch %s: cancellation requested", id), err
	})
}

func (a *apiCommand) cancelMatching(ctx context.Context, f *cancelFlags) error {
	filter, err := f.readFilter()
	if err != nil {
		return err
	}

	return bulkChange[wire.WaitingFilter]{
		name: "cancellation", verb: "Cancel", kind: "message", wouldBe: "cancelled",
		done: "cancelled",
		send: a.client.CancelMany, isWithoutQuestion: f.yes, isDryRun: f.dryRun, reason: f.reason,
		endAt: func(to time.Time) wire.WaitingFilter {
			if filter.To == nil {
				filter.To, filter.All = &to, false
			}
			return filter
		}}.run(ctx, a, filter)
}
