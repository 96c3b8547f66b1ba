// Package process is the function that answers a ticket: it looks at the ticket's lane, and starts
// the lane's drain if there is work; see package stay.
package process

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/invoke"
	"weir/internal/residence/stay"
	"weir/internal/ticket"
)

// Function answers tickets. All fields are required.
type Function struct {
	Answerer *stay.Answerer
	Logger   *slog.Logger
}

// Handler returns the handler that the host calls.
func (f *Function) Handler() http.Handler { return invoke.Handler("process", f.Logger, f.Process) }

// Process answers one ticket. If it returns an error, the host makes the ticket visible again.
func (f *Function) Process(ctx context.Context, in invoke.Invocation) error {
	text, err := in.Text("ticket")
	if err != nil {
		return err
	}

	_, lane, err := ticket.Decode(text)
	if err != nil || lane >= f.Answerer.Lanes {
		f.Logger.Warn("process: not a ticket", "invocation_id", in.ID, "err", err)
		return nil // after an error the host would send the same text again
	}

	return f.Answerer.Answer(ctx, lane)
}
