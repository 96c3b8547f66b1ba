// Package poison is the function for tickets in the poison queue. The host moves a ticket there
// after five failed tries. The function logs the ticket, and enqueues a new ticket for the same
// lane. If the old ticket was for all lanes, the new one is for all lanes, too. So the messages do
// not wait for the sweep.
package poison

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"weir/internal/invoke"
	"weir/internal/ticket"
)

// retryAfter is the approximate delay of the new ticket. The delay is long because the old ticket
// failed five times.
const retryAfter = time.Minute

// Tickets enqueues tickets; see Requeue of ticket.Sender.
type Tickets interface {
	Requeue(ctx context.Context, lane int, about time.Duration) error
}

// Observer counts poisoned tickets.
type Observer interface{ Poisoned() }

// Function handles poisoned tickets. All fields are needed.
type Function struct {
	Tickets  Tickets
	Lanes    int
	Observer Observer
	Logger   *slog.Logger
}

// Handler returns the handler that the host calls.
func (f *Function) Handler() http.Handler { return invoke.Handler("poison", f.Logger, f.Take) }

// Take handles one ticket of the poison queue.
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

	f.Observer.Poisoned()
	f.Logger.Error("poison: ticket given up by the host, ringing again", "invocation_id", in.ID,
		"lane", lane, "delay_ms", retryAfter.Milliseconds())

	return f.Tickets.Requeue(ctx, lane, retryAfter)
}
