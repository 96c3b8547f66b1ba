// Package overview reads lanes and messages for operators. It changes nothing.
//
//   - Lanes returns the state of each lane, with counts of its messages.
//   - Search returns messages by a filter, the newest first.
//   - Scheduled returns scheduled messages in the order of their due times.
//   - Clusters groups dead messages by the cause of their death.
//   - Forecast estimates when a waiting message is sent, and names the cause of the wait.
//
// Storage returns rows only in ascending order, so that the oldest message comes first. But Search
// and Clusters need the newest messages first. So they read the log, or the list of dead messages,
// in chunks of sequence numbers, and begin with the last chunk.
//
// Each call makes a limited number of queries. If further messages can match, Search returns a
// token with which the next call continues.
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
	// Rate returns how many messages of a lane became delivered, dead or superseded per minute, as
	// the mean over the last minutes. The argument "minutes" is the number of these minutes, at
	// most 15. If no counters of these minutes can be read, "known" is false.
	Rate(ctx context.Context, lane, minutes int) (perMinute float64, known bool)
	// CompleteUntil returns the end of the last minute that Rate includes; zero = not known.
	CompleteUntil() time.Time
	// Pace returns how many messages per minute a lane can be expected to finish while messages
	// wait.
	Pace(ctx context.Context, lane int) (perMinute float64, known bool)
}

// Calendar has the times at which holders send no messages.
type Calendar interface {
	// At reports whether the calendar is closed at a time, and returns the reason and the end of
	// the closed time.
	At(t time.Time) (closed bool, reason string, until time.Time)
}

// Redactor hides redacted values in bodies. redact.Bodies is the implementation.
type Redactor interface {
	// HideValues replaces the redacted values in m.Body, and reports whether the body has such
	// values. If HideValues returns an error, m.Body is nil.
	HideValues(ctx context.Context, m *weir.Message) (hasValues bool, err error)
}

// Overview reads the lanes of one storage account. It is safe for concurrent use.
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

// readPace returns the pace of a lane. Estimates divide by the pace, so a pace of 0 counts as not
// known.
func (o *Overview) readPace(ctx context.Context, lane int) Rate {
	if o.Rates == nil {
		return Rate{}
	}
	n, known := o.Rates.Pace(ctx, lane)
	return Rate{n, known && n > 0}
}

// readError converts an error for the caller of the API:
//   - An error that wraps a *weir.Error is returned unchanged.
//   - A temporary error of storage becomes an error of the kind weir.Unavailable.
//   - Any other error gets "op" as the prefix of its text.
func readError(op string, err error) error {
	var ours *weir.Error
	if errors.As(err, &ours) {
		return err
	}

	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return &weir.Error{Kind: weir.Unavailable, Op: op,
			Message:    "storage cannot be reached at the moment; try again",
			RetryAfter: 5 * time.Second, Err: err}
	}

	return fmt.Errorf("%s: %w", op, err)
}
