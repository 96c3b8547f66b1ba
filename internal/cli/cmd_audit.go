package cli

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/remote"
)

const auditHelp = `Lists who changed what, when and from where, newest first: cancels, moves, replays, edits, pauses,
schedules, changes of lanes. KEY is the beginning of the key's SHA-256:
  printf %s "$KEY" | sha256sum | cut -c1-8
--json prints a list of entries. --format csv and --format json print a file of up to 10,000 entries.
If there are more, CSV ends in a line in parentheses, and JSON has "continue".`

// maxChanges is the largest number of entries that one request asks for.
const maxChanges = 500

func newAuditCommand(s *console) *cobra.Command {
	a := &apiCommand{console: s}
	var action, subject string
	var limit int
	var file exportFlag
	cmd := &cobra.Command{Use: "audit", Short: "List who changed what", Long: auditHelp,
		Args: cobra.NoArgs}
	a.addFlags(cmd)
	cmd.Flags().StringVar(&action, "action", "", "only this action, like pause")
	cmd.Flags().StringVar(&subject, "subject", "",
		"only changes of this message, schedule or bulk replay")
	cmd.Flags().IntVar(&limit, "limit", 50, "entries at most; the default of --format is 10,000")
	file.addFlag(cmd)
	cmd.RunE = a.wrapRun(func(ctx context.Context, _ []string) error {
		if limit < 1 {
			return &usageError{"--limit must be 1 or more"}
		}

		query := url.Values{}
		for name, value := range map[string]string{"action": action, "subject": subject} {
			if value != "" {
				query.Set(name, value)
			}
		}

		if file.isGiven() {
			return file.printList(ctx, a, cmd, "/audit", query, limit)
		}

		return a.printChanges(ctx, query, limit)
	})

	return cmd
}

// describeDetail returns the parameters of a change, and the erasures that have removed some of
// them.
func describeDetail(e remote.Change) string {
	if len(e.RedactedBy) == 0 {
		return string(e.Detail)
	}
	return strings.TrimSpace(string(e.Detail) + " (redacted by the erasure of " +
		strings.Join(e.RedactedBy, ", ") + ")")
}

// printChanges prints at most limit entries, newest first.
func (a *apiCommand) printChanges(ctx context.Context, query url.Values, limit int) error {
	rows := [][]string{{"AT", "ACTION", "SUBJECT", "BY", "FROM", "STATUS", "DETAIL"}}
	raw := []json.RawMessage{}
	for {
		query.Set("limit", strconv.Itoa(min(limit-len(raw), maxChanges)))
		page, err := a.client.Changes(ctx, query)
		if err != nil {
			return err
		}

		var list struct{ Entries []json.RawMessage }
		if err := json.Unmarshal(page.JSON, &list); err != nil {
			return err
		}

		raw = append(raw, list.Entries...)

		for _, e := range page.Value.Entries {
			by := e.Principal
			if e.KeyID != "" {
				by += " key " + e.KeyID
			}

			rows = append(rows,
				[]string{formatTime(e.At), e.Action, e.Subject, by, e.From, strconv.Itoa(e.Status),
					describeDetail(e)})
		}

		query.Set("continue", page.Value.Continue)

		if page.Value.Continue == "" || len(raw) >= limit {
			if a.json {
				return a.printJSON(raw)
			}
			return a.printRows(rows, "There is no entry.", page.Value.Continue == "")
		}
	}
}
