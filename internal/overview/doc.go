// Package overview reads lanes and messages for operators. It changes nothing.
//
//   - Lanes returns the state of each lane, with counts that balance.
//   - Search returns messages by a filter, the newest first.
//   - Scheduled returns scheduled messages in the order of their due times.
//   - Clusters groups dead messages by the cause of their death.
//   - Forecast estimates when a waiting message is sent, and names the cause of the wait.
//
// Storage returns rows only in ascending order, oldest message first. So Search and Clusters read the rows of the lanes
// backwards in chunks: the log, or the list of dead messages. The cost of each call is bounded. If a search is not
// complete, Search returns a token with which the next call continues.
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

// Rates returns the recent rates of lanes.
type Rates interface {
	// Rate returns how many messages of a lane became delivered, dead or superseded per minute. It is the mean of the
	// last minutes; the argument "minutes" is their number, at most 15. The rate is not known if no counters of that
	// time are recorded or can be read.
	Rate(ctx context.Context, lane, minutes int) (perMinute float64, known bool)
	// CompleteUntil returns the end of the last minute that Rate includes.
	CompleteUntil() time.Time
	// Pace returns the messages per minute that a lane finishes while it has enough work.
	Pace(ctx context.Context, lane int) (perMinute float64, known bool)
}

// Calendar has the times in which no message is sent.
type Calendar interface {
	// At reports whether the calendar is closed at a time, and returns the reason and the end of the closed time.
	At(t time.Time) (closed bool, reason string, until time.Time)
}

// Redactor hides the values of bodies that readers may not see; see redact.Bodies.
type Redactor interface {
	// HideValues replaces the hidden values in the body of a message. After an error the message has no body.
	HideValues(ctx context.Context, m *weir.Message) (hasValues bool, err error)
}

// Overview reads one storage account. Its methods may be called concurrently.
type Overview struct {
	Store    *lane.Store
	Rates    Rates    // nil = no rate is known
	Calendar Calendar // nil = always open
	Redactor Redactor // nil = no message has redacted values
	Now      func() time.Time

	textSearches textSearchLimit
}

func (o *Overview) readRate(ctx context.Context, lane, minutes int) Rate {
	if o.Rates == nil {
		return Rate{}
	}
	n, known := o.Rates.Rate(ctx, lane, minutes)
	return Rate{n, known}
}

// readPace returns the pace of a lane, for estimates. A pace of 0 counts as not known.
func (o *Overview) readPace(ctx context.Context, lane int) Rate {
	if o.Rates == nil {
		return Rate{}
	}
	n, known := o.Rates.Pace(ctx, lane)
	return Rate{n, known && n > 0}
}

// readError returns the error for the caller of the API. It returns an error that wraps a *weir.Error unchanged. If
// storage may answer later, it returns Unavailable. It puts op before the text of any other error.
func readError(op string, err error) error {
	var ours *weir.Error
	if errors.As(err, &ours) {
		return err
	}
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return &weir.Error{Kind: weir.Unavailable, Op: op,
			Message: "storage cannot be reached at the moment; try again", RetryAfter: 5 * time.Second, Err: err}
	}
	return fmt.Errorf("%s: %w", op, err)
}
