package cli

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/wire"
)

const listHelp = `Lists messages, the last accepted first. With --scheduled it lists the scheduled messages in the order
of their due times. A time is given like 2026-01-31T08:00:00Z, or as an age, like 24h.

--format csv and --format json print a file of up to 10,000 messages. If there are more, CSV ends in
a line in parentheses, and JSON has "complete": false.`

// listFlags are the flags of the command "list" that become query parameters of the API. Each entry
// has the flag's name, the parameter's name and the help text.
var listFlags = [][3]string{
	{"stage", "stage", "only messages of this stage"},
	{"key", "key", "only messages of this ordering key"},
	{"key-prefix", "keyPrefix", "only messages whose ordering key begins with this"},
	{"lane", "lane", "only messages of this lane"},
	{"contract", "contract", "only messages of this contract"},
	{"upstream", "upstream", "only messages of this upstream"},
	{"version", "version", "only messages of this version"},
	{"cms-status", "cmsStatus", "only messages with this last status of the CMS, like 422 or 5xx"},
	{"attempts-from", "attemptsFrom", "only messages with at least this many attempts"},
	{"attempts-to", "attemptsTo", "only messages with at most this many attempts"},
	{"idempotency-key", "idempotencyKey", "only messages posted with this Idempotency-Key"},
	{"shown", "shown", "only messages that show this, like title:harbour"},
	{"text", "text", "only messages with this text in key, error or body"},
	{"from", "from", "only messages accepted from this time on; with --scheduled: due from this time on"},
	{"to", "to", "only messages accepted before this time; with --scheduled: due before this time"},
	{"finished-from", "finishedFrom", "only messages that became final from this time on"},
	{"finished-to", "finishedTo", "only messages that became final before this time"},
}

// scheduledFlags are the listFlags that are allowed with --scheduled.
var scheduledFlags = []string{"lane", "from", "to"}

func newListCommand(s *console) *cobra.Command {
	a := &apiCommand{console: s}
	var limit int
	var file exportFlag
	var isScheduled bool
	cmd := &cobra.Command{Use: "list", Short: "List messages", Long: listHelp, Args: cobra.NoArgs}
	a.addFlags(cmd)
	cmd.Flags().BoolVar(&isScheduled, "scheduled", false, "the scheduled messages by due time")

	for _, f := range listFlags {
		cmd.Flags().String(f[0], "", f[2])
		if !slices.Contains(scheduledFlags, f[0]) {
			cmd.MarkFlagsMutuallyExclusive("scheduled", f[0])
		}
	}

	cmd.Flags().IntVar(&limit, "limit", 50, "messages at most; the default of --format is 10,000")
	file.addFlag(cmd)
	cmd.RunE = a.wrapRun(func(ctx context.Context, _ []string) error {
		query, err := readListQuery(cmd)
		path := "/messages"
		if isScheduled {
			path = "/scheduled"
		}

		switch {
		case err != nil:
			return err
		case limit < 1:
			return &usageError{"--limit must be 1 or more"}
		case file.isGiven():
			return file.printList(ctx, a, cmd, path, query, limit)
		}

		return a.printMessages(ctx, path, query, limit)
	})

	return cmd
}

func readListQuery(cmd *cobra.Command) (url.Values, error) {
	query := url.Values{}
	for _, f := range listFlags {
		if !cmd.Flags().Changed(f[0]) {
			continue
		}

		value := cmd.Flag(f[0]).Value.String()
		if value == "" {
			return nil, &usageError{"--" + f[0] + " is empty"}
		}

		if strings.HasSuffix(f[0], "from") && f[0] != "attempts-from" ||
			strings.HasSuffix(f[0], "to") &&
				f[0] != "attempts-to" {
			at, err := parseTimeOrAge(f[0], value)
			if err != nil {
				return nil, err
			}
			value = at.UTC().Format("2006-01-02T15:04:05Z07:00")
		}

		query.Set(f[1], value)
	}

	return query, nil
}

func (a *apiCommand) printMessages(ctx context.Context, path string, query url.Values,
	limit int) error {
	found := []json.RawMessage{}
	complete := false
	for len(found) < limit && !complete {
		query.Set("limit", strconv.Itoa(min(limit-len(found), maxPage)))
		page, err := a.client.List(ctx, path, query)
		if a.beginAnew(err) {
			found = found[:0]
			query.Del("continue")
			continue
		}

		if err != nil {
			return err
		}

		found = append(found, page.Value.Messages...)
		complete = page.Value.Continue == ""
		query.Set("continue", page.Value.Continue)
	}

	if a.json {
		return a.printJSON(map[string]any{"messages": found, "complete": complete})
	}

	rows := [][]string{{"ACCEPTED", "DUE", "STAGE", "ID", "CONTRACT", "KEY", "ATTEMPTS", "CMS",
		"SHOWN", "ERROR"}}

	for _, line := range found {
		var m wire.Message
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}

		status := ""
		if m.CMSStatus != 0 {
			status = strconv.Itoa(m.CMSStatus)
		}

		rows = append(rows, []string{formatTime(m.AcceptedAt), formatTime(m.DeliverAt),
			string(m.Stage), m.ID, m.Contract,
			m.Key, strconv.Itoa(m.AttemptCount), status, joinShown(m.Shown), m.LastError})
	}

	return a.printRows(rows, "No messages match.", complete)
}

func joinShown(values map[string]string) string {
	var parts []string
	for name, value := range values {
		parts = append(parts, name+": "+value)
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}
