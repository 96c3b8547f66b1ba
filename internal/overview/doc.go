// Package overview is what an operator reads: how the lanes stand, which messages there
// are, what the dead ones died of, and what a waiting one waits for. It reads and changes
// nothing.
//
// Storage gives rows in the order of the log and knows no other order, so the newest
// messages are found by reading the logs backwards in pieces, all lanes at once, and
// merging them. Every answer is bounded: what is left is read by a call that goes on where
// the last one ended.
package overview

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Rates tells how fast lanes were emptied lately.
type Rates interface {
	// Rate is how many of a lane's messages became final a minute, over the last so many
	// minutes; not known where nothing of that was seen.
	Rate(ctx context.Context, lane, minutes int) (perMinute float64, known bool)
	// Pace gives the messages a minute that a lane gets through while it has enough to do.
	Pace(ctx context.Context, lane int) (perMinute float64, known bool)
}

// Calendar tells when nothing is delivered.
type Calendar interface {
	// At says whether it is closed at a moment, by which name, and until when.
	At(t time.Time) (closed bool, reason string, until time.Time)
}

// Overview reads one storage account. Its methods may be called concurrently.
type Overview struct {
	Store    *lane.Store
	Rates    Rates    // nil = not known
	Calendar Calendar // nil = always open
	Now      func() time.Time

	texts turns
}

// rate gives a rate, where there is any.
func (o *Overview) rate(ctx context.Context, lane, minutes int) Rate {
	if o.Rates == nil {
		return Rate{}
	}
	n, known := o.Rates.Rate(ctx, lane, minutes)
	return Rate{n, known}
}

// pace gives the rate to reckon with, where there is any.
func (o *Overview) pace(ctx context.Context, lane int) Rate {
	if o.Rates == nil {
		return Rate{}
	}
	n, known := o.Rates.Pace(ctx, lane)
	return Rate{n, known && n > 0}
}

// readError is what a caller sees of an error: ours as they are, storage's as a reason to
// try again.
func readError(op string, err error) error {
	var ours *weir.Error
	if errors.As(err, &ours) {
		return err
	}
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return &weir.Error{Kind: weir.Unavailable, Op: op, Message: "storage cannot be reached at the moment; try again", RetryAfter: 5 * time.Second, Err: err}
	}
	return fmt.Errorf("%s: %w", op, err)
}
