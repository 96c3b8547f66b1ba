package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/app"
)

const checkHelp = `Checks settings, contracts, the host's file, storage and the CMS, and prints a line for each: ok, or
the problem and how to correct it. A warning names a weakness that stops nothing. The command
changes nothing in storage, and sends the CMS no message: it opens a connection, and signs in if
delivery.signIn is set.

With --json each check is a line {"name", "ok", "detail", "wrong", "todo", "warnings"}. The
command ends with 1 if there is a problem.`

func newCheckCommand(s *console) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "check", Short: "Check settings, storage and CMS", Long: checkHelp,
		Args: cobra.NoArgs}
	addJSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return asFailure(s.runCheck(cmd.Context(), asJSON), true) }
	return cmd
}

// errFindings is the error of a check that found a problem. It is silent: each problem has its line.
var errFindings = errors.New("something is wrong")

func (s *console) runCheck(ctx context.Context, asJSON bool) error {
	var err error
	for _, f := range app.Diagnose(ctx, s.env) {
		if f.Wrong != nil {
			err = errFindings
		}
		if asJSON {
			err = errors.Join(err, s.printJSON(findingToJSON(f)))
			continue
		}
		s.printFinding(f)
	}
	return err
}

// printFinding prints a finding: a line for each problem and each warning.
func (s *console) printFinding(f app.Finding) {
	defer func() {
		for _, line := range f.Warnings {
			fmt.Fprintf(s.stdout, "%-9s warning: %s\n", f.Name, line)
		}
	}()
	if f.Wrong == nil {
		fmt.Fprintln(s.stdout, strings.TrimSpace(fmt.Sprintf("%-9s ok  %s", f.Name, f.Detail)))
		return
	}
	for line := range strings.SplitSeq(f.Wrong.Error(), "\n") {
		fmt.Fprintf(s.stdout, "%-9s wrong: %s; %s\n", f.Name, line, f.Todo)
	}
}

// findingJSON is the JSON form of a finding.
type findingJSON struct {
	Name   string   `json:"name"`
	OK     bool     `json:"ok"`
	Detail string   `json:"detail,omitempty"`
	Wrong  []string `json:"wrong,omitempty"`
	Todo   string   `json:"todo,omitempty"`

	Warnings []string `json:"warnings,omitempty"`
}

func findingToJSON(f app.Finding) findingJSON {
	if f.Wrong == nil {
		return findingJSON{Name: f.Name, OK: true, Detail: f.Detail, Warnings: f.Warnings}
	}
	return findingJSON{Name: f.Name, Wrong: strings.Split(f.Wrong.Error(), "\n"), Todo: f.Todo, Warnings: f.Warnings}
}
