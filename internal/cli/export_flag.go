package cli

import (
	"context"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

// exportFlag is the flag --format of commands that print a list.
type exportFlag struct{ format string }

func (f *exportFlag) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.format, "format", "", "csv or json, for a file")
}

// isGiven reports whether the user gave --format.
func (f *exportFlag) isGiven() bool { return f.format != "" }

// printList prints the list at a path of the API as a file. If the user gave --limit, the file has at most limit
// entries. Otherwise the limit in query applies, or Weir's default if query has none.
func (f *exportFlag) printList(ctx context.Context, a *apiCommand, cmd *cobra.Command, path string, query url.Values,
	limit int) error {
	switch {
	case f.format != "csv" && f.format != "json":
		return &usageError{"--format must be csv or json"}
	case a.json:
		return &usageError{"--format does not go with --json"}
	}
	query.Set("format", f.format)
	if cmd.Flags().Changed("limit") {
		query.Set("limit", strconv.Itoa(limit))
	}
	return a.client.Export(ctx, path, query, a.stdout)
}
