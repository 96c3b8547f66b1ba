package azure

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"weir/internal/storage"
)

// manner is what kind of call failed: the same 500 means "ask again" for a read and
// "who knows" for a write.
type manner int

const (
	reading manner = iota // nothing could change
	writing               // sent, or maybe sent
	unsent                // a write of which nothing was sent
)

// unclear is the kind of a failure that says nothing of what was done.
func (m manner) unclear() storage.Kind {
	if m == writing {
		return storage.Ambiguous
	}
	return storage.Unavailable
}

// classify makes the ports' error of the SDK's; nil stays nil.
func classify(op string, m manner, err error) error {
	if err == nil {
		return nil
	}
	var known *storage.Error
	if errors.As(err, &known) {
		return err
	}
	e := &storage.Error{Op: op, Kind: m.unclear(), Index: -1, Err: err}
	var r *azcore.ResponseError
	if errors.As(err, &r) {
		e.Kind = kindOf(m, r.StatusCode, r.ErrorCode)
		e.RetryAfter = retryAfter(r.RawResponse)
		e.Err = causeOf(r.ErrorCode, answered{r})
	}
	return e
}

// causeOf adds ErrGone to the cause of an error whose code means that the table, queue or
// container does not exist.
func causeOf(code string, err error) error {
	switch code {
	case "TableNotFound", "QueueNotFound", "ContainerNotFound":
		return fmt.Errorf("%w: %w", storage.ErrGone, err)
	}
	return err
}

// answered is a ResponseError that prints in one line, without the answer's body.
type answered struct{ r *azcore.ResponseError }

func (a answered) Error() string { return fmt.Sprintf("%d %s", a.r.StatusCode, a.r.ErrorCode) }
func (a answered) Unwrap() error { return a.r }

// kindOf reads status and code. The codes come first: they are finer.
func kindOf(m manner, status int, code string) storage.Kind {
	switch code {
	case "TableNotFound", "QueueNotFound", "ContainerNotFound", "ContainerDisabled", "QueueDisabled",
		"TableBeingDeleted", "QueueBeingDeleted", "ContainerBeingDeleted":
		return storage.Unavailable // the table, queue or container, not the row, message or blob in it. Nothing was done
	case "PopReceiptMismatch":
		return storage.NotFound
	case "EntityTooLarge", "PropertyValueTooLarge", "RequestBodyTooLarge", "MessageTooLarge", "ContentLengthTooLarge":
		return storage.TooLarge
	}
	switch status {
	case http.StatusNotFound:
		return storage.NotFound
	case http.StatusConflict:
		return storage.Conflict
	case http.StatusPreconditionFailed:
		return storage.Precondition
	case http.StatusRequestEntityTooLarge:
		return storage.TooLarge
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return storage.Throttled
	}
	if status >= 500 || status == http.StatusRequestTimeout || status < 300 {
		return m.unclear() // below 300: an answer that could not be read
	}
	return storage.Other
}

// retryAfter reads the header in both its forms; 0 = it said nothing.
func retryAfter(r *http.Response) time.Duration {
	if r == nil {
		return 0
	}
	for name, unit := range map[string]time.Duration{"Retry-After-Ms": time.Millisecond, "X-Ms-Retry-After-Ms": time.Millisecond, "Retry-After": time.Second} {
		if n, err := strconv.Atoi(r.Header.Get(name)); err == nil && n > 0 {
			return time.Duration(n) * unit
		}
	}
	at, err := http.ParseTime(r.Header.Get("Retry-After"))
	now, err2 := http.ParseTime(r.Header.Get("Date"))
	if err != nil || err2 != nil {
		return 0
	}
	return max(0, at.Sub(now))
}
