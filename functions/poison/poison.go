// Package poison is the function for tickets that the host gave up. It logs each such ticket, and enqueues a new one
// for the same lane. If the ticket was for all lanes, the new one is, too. So the messages do not wait for the sweep.
package poison

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"weir/internal/invoke"
	"weir/internal/ticket"
)

// retryAfter is the approximate delay of the new ticket. It is long because the old ticket failed five times.
const retryAfter = time.Minute

// Tickets enqueues tickets under the merge rule of package ticket.
type Tickets interface {
	Requeue(ctx context.Context, lane int, about time.Duration) error
}

// Function handles poisoned tickets. All fields are needed.
type Function struct {
	Tickets Tickets
	Lanes   int
	Logger  *slog.Logger
}

// Handler returns the handler that the host calls.
func (f *Function) Handler() http.Handler { return invoke.Handler("poison", f.Logger, f.Take) }

// Take handles one poisoned ticket.
func (f *Function) Take(ctx context.Context, in invoke.Invocation) error {
	text, err := in.Text("ticket")
	if err != nil {
		return err
	}
	_, lane, err := ticket.Decode(text)
	if err != nil || lane >= f.Lanes {
		f.Logger.Error("poison: not a ticket", "invocation_id", in.ID, "err", err)
		return nil
	}
	f.Logger.Error("poison: ticket given up by the host, ringing again", "invocation_id", in.ID, "lane", lane,
		"delay_ms", retryAfter.Milliseconds())
	return f.Tickets.Requeue(ctx, lane, retryAfter)
}
