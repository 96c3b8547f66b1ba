package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"weir/internal/app"
	"weir/internal/verify"
)

const verifyHelp = `Reads every message in storage, compares them with the counters of their lanes, and prints a
line for each lane: whole, or the differences. It writes nothing. Run it on a restored or
copied storage account before an app uses it. A copy that was made while Weir ran is not
whole: Weir would refuse new messages and stop in the middle of a lane. Copy the account
again with the app stopped. In a folder of weir serve it also compares the checksum of each stored
row and body. With --json each line is an object.
Ends with 1 if a lane is not whole.`

func newVerifyCommand(s *console) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "verify", Short: "Compare stored messages with the lanes' counters",
		Long: verifyHelp, Args: cobra.NoArgs}
	addJSONFlag(cmd, &asJSON)
	s.addDataFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		a, err := s.openApp(cmd.Context(), false)
		if err != nil {
			return asFailure(err, false)
		}
		defer a.Close(cmd.Context())
		return asFailure(s.runVerify(cmd.Context(), a, asJSON), false)
	}

	return cmd
}

var errNotWhole = errors.New("not all lanes are whole; " +
	"if the account is a copy, make it again with the app stopped: docs/deploy.md#restore")

func (s *console) runVerify(ctx context.Context, a *app.App, asJSON bool) error {
	damaged, err := a.CheckFolder(ctx)
	if err != nil {
		return err
	}

	for _, text := range damaged {
		fmt.Fprintln(s.stderr, "weir:", text)
	}

	if len(damaged) > 0 {
		return errDamagedFolder
	}

	isWhole := true
	err = a.CompareLanes(ctx, func(r verify.Report) error {
		isWhole = isWhole && r.IsWhole()
		if asJSON {
			return s.printJSON(verifyOutput{Lane: r.Lane, Whole: r.IsWhole(), Accepted: r.Accepted,
				Waiting: r.Waiting, Stored: r.Stored, InUse: r.InUse, Problems: r.Problems()})
		}

		s.printReport(r)
		return nil
	})
	if err == nil && !isWhole {
		err = errNotWhole
	}

	return err
}

type verifyOutput struct {
	Lane     int      `json:"lane"`
	Whole    bool     `json:"whole"`
	Accepted int64    `json:"accepted"`
	Waiting  int64    `json:"waiting"`
	Stored   int64    `json:"stored"`
	InUse    bool     `json:"inUse,omitempty"`
	Problems []string `json:"problems,omitempty"`
}

func (s *console) printReport(r verify.Report) {
	state := "whole"
	if !r.IsWhole() {
		state = "NOT whole"
	}

	fmt.Fprintf(s.stdout, "lane %-3d %s: %d accepted, %d waiting, %d stored\n", r.Lane, state,
		r.Accepted, r.Waiting, r.Stored)
	for _, text := range r.Problems() {
		fmt.Fprintln(s.stdout, "         ", text)
	}

	if r.InUse {
		fmt.Fprintln(s.stdout,
			"          the lane changed meanwhile: stop the app and run this again")
	}
}
