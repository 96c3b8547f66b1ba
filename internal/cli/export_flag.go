package cli

import (
	"context"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

// exportFlag is the flag --format, which prints a list as CSV or JSON.
type exportFlag struct{ format string }

func (f *exportFlag) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.format, "format", "", "csv or json, for a file")
}

func (f *exportFlag) isGiven() bool { return f.format != "" }

// printList prints the list at a path of the API in the given format. The argument "limit" is the
// value of --limit. If the user gave --limit, printList writes this value into query.
func (f *exportFlag) printList(ctx context.Context, a *apiCommand, cmd *cobra.Command, path string,
	query url.Values, limit int) error {
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
