package storage

import (
	"errors"
	"fmt"
	"time"
)

// Kind classifies storage errors by their meaning for the caller.
type Kind int

// The kinds of storage errors.
const (
	Other        Kind = iota // any other error, for example: denied, malformed, a defect
	NotFound                 // the row, message or blob does not exist
	Conflict                 // the row exists already, or the caller's id does not hold the lease
	Precondition             // the row or file has another ETag than the call requires
	TooLarge                 // the request or value is over storage's limit
	Throttled                // storage asks to slow down; nothing was done
	Unavailable              // a read without a usable answer, or a write that was certainly not done
	Ambiguous                // a write that was sent, with an unknown result
)

var kindNames = [...]string{"other", "not found", "conflict", "precondition failed", "too large", "throttled",
	"unavailable", "ambiguous"}

func (k Kind) String() string { return kindNames[k] }

// ErrGone is in an error's chain if the table, queue or container of the call does not exist. The failed call had no
// effect.
var ErrGone = errors.New("the table, queue or container does not exist")

// Error is the error type of all ports.
type Error struct {
	Op         string // the failed call, for example "table transact" or "lease acquire"
	Kind       Kind
	Index      int           // index of Transact's failed operation; -1 = unknown, or another method failed
	RetryAfter time.Duration // the pause that storage asked for; 0 = none
	Err        error         // the cause, for logs
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: %s", e.Op, e.Kind)
	}
	return fmt.Sprintf("%s: %s: %v", e.Op, e.Kind, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the first *Error in err's chain, or Other if the chain has none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Other
}

// Is reports whether the first *Error in err's chain is of kind k. If the chain has no *Error, Is returns false.
func Is(err error, k Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == k
}

// FailedAt returns the index of the operation at which a transaction failed, or -1 if the index is unknown.
func FailedAt(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Index
	}
	return -1
}
