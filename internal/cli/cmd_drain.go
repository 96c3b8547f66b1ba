package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/app"
	"weir/internal/poll"
)

const drainHelp = `Delivers all due messages of all lanes, once. It ends when each lane is empty or its other
messages must wait: for their due time, for a retry, or for a CMS that is unavailable. It prints a
line for each lane.

The command ends with 1 if a message was left that could have been sent: storage could not be
reached, or another process holds the lane.`

func newDrainCommand(s *console) *cobra.Command {
	var verbose, asJSON bool
	cmd := &cobra.Command{Use: "drain", Short: "Empty all lanes once", Long: drainHelp,
		Args: cobra.NoArgs}
	addVerboseFlag(cmd, &verbose)
	addJSONFlag(cmd, &asJSON)
	s.addDataFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		a, err := s.openApp(cmd.Context(), verbose)
		if err != nil {
			return asFailure(err, false)
		}
		defer a.Close(cmd.Context())
		return asFailure(s.runDrain(cmd.Context(), a, asJSON), false)
	}

	return cmd
}

// drainOutput is the JSON output for a lane. Delivered, Dead, Cancelled, Superseded and Discarded
// count the messages that became final while the command worked on the lane.
type drainOutput struct {
	Lane       int        `json:"lane"`
	State      poll.State `json:"state"`
	Delivered  int64      `json:"delivered"`
	Dead       int64      `json:"dead"`
	Cancelled  int64      `json:"cancelled"`
	Superseded int64      `json:"superseded"`
	Discarded  int64      `json:"discarded"`
	Waiting    int64      `json:"waiting"`
	Until      *time.Time `json:"until,omitempty"`
	Reason     string     `json:"reason,omitempty"`
}

func (s *console) printDrainResult(e *poll.DrainResult, asJSON bool) error {
	if !asJSON {
		s.printLine("%s", e)
		return nil
	}

	l := drainOutput{Lane: e.Lane, State: e.State(), Delivered: e.Done.Delivered, Dead: e.Done.Dead,
		Cancelled: e.Done.Cancelled, Superseded: e.Done.Superseded, Discarded: e.Done.Discarded,
		Waiting: e.Waiting, Reason: e.Report.Reason}
	if until := e.Until(); !until.IsZero() {
		l.Until = &until
	}

	if e.Err != nil {
		l.Reason = e.Err.Error()
	}

	return s.printJSON(l)
}

var errWorkLeft = errors.New("a message is left that could have been sent")

func (s *console) runDrain(ctx context.Context, a *app.App, asJSON bool) error {
	results, err := a.DrainLanes(ctx)
	for _, r := range results {
		err = errors.Join(err, s.printDrainResult(&r, asJSON))
		if r.HasWorkLeft() {
			err = errors.Join(err, fmt.Errorf("lane %d: %w", r.Lane, errWorkLeft))
		}
	}

	return err
}
