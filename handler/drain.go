package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/drain"
	"weir/internal/poll"
)

const drainHelp = `Delivers everything that is due in all lanes, once, and ends when every lane is empty or
what is left cannot go now: it is due later, waits for a retry, or for a CMS that is away.
Prints a line for each lane.

It ends with 1 when something is left that could have gone: storage could not be reached,
or another process holds the lane.`

func (s *shell) drainCommand() *cobra.Command {
	var verbose, asJSON bool
	cmd := &cobra.Command{Use: "drain", Short: "Empty all lanes once", Long: drainHelp, Args: cobra.NoArgs}
	addVerbose(cmd, &verbose)
	addJSON(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := s.program(cmd.Context(), verbose)
		if err != nil {
			return failed(err, false)
		}
		defer flush(cmd.Context(), p.export)
		return failed(s.drain(cmd.Context(), p, asJSON), false)
	}
	return cmd
}

// emptiedLane is what became of a lane, for programs.
type emptiedLane struct {
	Lane       int        `json:"lane"`
	State      poll.State `json:"state"`
	Delivered  int64      `json:"delivered"`
	Dead       int64      `json:"dead"`
	Cancelled  int64      `json:"cancelled"`
	Superseded int64      `json:"superseded"`
	Waiting    int64      `json:"waiting"`
	Until      *time.Time `json:"until,omitempty"`
	Reason     string     `json:"reason,omitempty"`
}

func (s *shell) tellEmptied(e *poll.DrainResult, asJSON bool) error {
	if !asJSON {
		s.print("%s", e)
		return nil
	}
	l := emptiedLane{e.Lane, e.State(), e.Done.Delivered, e.Done.Dead, e.Done.Cancelled, e.Done.Superseded, e.Waiting, nil, e.Report.Reason}
	if until := e.Until(); !until.IsZero() {
		l.Until = &until
	}
	if e.Err != nil {
		l.Reason = e.Err.Error()
	}
	return s.document(l)
}

// errLeft is the failure of a drain that left something.
var errLeft = errors.New("something is left that could have gone")

func (s *shell) drain(ctx context.Context, p *Program, asJSON bool) error {
	store, err := p.openStore(ctx)
	if err != nil {
		return fmt.Errorf("storage could not be opened: %w", err)
	}
	sender := p.newNotifier(store)
	drainer := drain.New(p.drainConfig(store, p.newBell(store)))
	lanes := make([]poll.DrainResult, p.settings.Lanes)
	var all sync.WaitGroup
	for n := range lanes {
		all.Go(func() { lanes[n] = poll.DrainLane(ctx, store, drainer, n, time.Now) })
	}
	all.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err = errors.Join(drainer.Close(closing), closeNotifier(closing, sender))
	for _, l := range lanes {
		err = errors.Join(err, s.tellEmptied(&l, asJSON))
		if l.HasWorkLeft() {
			err = errors.Join(err, fmt.Errorf("lane %d: %w", l.Lane, errLeft))
		}
	}
	return err
}
