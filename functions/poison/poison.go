// Package poison is the function that sees tickets the host has given up: it records them and
// rings their lanes again later, so that no lane is forgotten. A ticket for all lanes is rung
// again as one.
package poison

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"weir/internal/invoke"
	"weir/internal/ticket"
)

// later is when a lane is rung again whose ticket failed five times.
const later = time.Minute

// Bell puts tickets, under its merge rule.
type Bell interface {
	PutBack(ctx context.Context, lane int, about time.Duration) error
}

// Function takes poisoned tickets. All fields are needed.
type Function struct {
	Bell   Bell
	Lanes  int
	Logger *slog.Logger
}

// Handler is the function as the host calls it.
func (f *Function) Handler() http.Handler { return invoke.Handler("poison", f.Logger, f.Take) }

// Take takes one poisoned ticket.
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
	f.Logger.Error("poison: ticket given up by the host, ringing again", "invocation_id", in.ID, "lane", lane, "delay", later)
	return f.Bell.PutBack(ctx, lane, later)
}
