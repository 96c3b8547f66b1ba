package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

const eraseHelp = `Erases the content of final messages: bodies, the answers of the CMS, notes, callback and trace. The ordering
key is replaced by its SHA-256. Stage, times and counts stay. This cannot be undone. A message that may still be
sent is refused: cancel it first. Erasing a message again has no effect.

What has left Weir is not erased: the CMS, receivers of events, logs and traces, deleted blobs that the storage
account keeps (soft delete), backups.`

func newEraseCommand(s *console) *cobra.Command {
	a := &apiCommand{console: s}
	cmd := &cobra.Command{Use: "erase ID...", Short: "Erase the content of messages",
		Long: eraseHelp, Args: requireArguments(1, -1, "messages' ids")}
	a.addFlags(cmd)
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		ids, err := parseMessageIDs(args)
		if err != nil {
			return err
		}

		var failed error
		for _, id := range ids {
			m, err := a.client.Erase(ctx, id)
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}

			if a.json {
				a.printLine("%s", m.JSON)
				continue
			}

			a.printLine("%s  %s, erased at %s", sanitizeText(m.Value.ID), m.Value.Stage,
				formatTime(m.Value.ErasedAt))
		}

		return failed
	})

	return cmd
}
