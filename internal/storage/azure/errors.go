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

// callClass is the class of a failed call. The kind of the error depends on the class: for example,
// status 500 is Unavailable for a read, but Ambiguous for a write that was sent.
type callClass int

const (
	readCall    callClass = iota // a read, or the creation of a table, queue or container
	sentWrite                    // a write that storage can have received
	unsentWrite                  // a write that was not sent
)

// ambiguousKind returns the kind of an error that does not tell whether storage did the request.
func (m callClass) ambiguousKind() storage.Kind {
	if m == sentWrite {
		return storage.Ambiguous
	}
	return storage.Unavailable
}

// toStorageError converts an error of the SDK to a *storage.Error, and nil to nil.
func toStorageError(op string, m callClass, err error) error {
	if err == nil {
		return nil
	}

	var known *storage.Error
	if errors.As(err, &known) {
		return err
	}

	e := &storage.Error{Op: op, Kind: m.ambiguousKind(), Index: -1, Err: err}
	var r *azcore.ResponseError
	if errors.As(err, &r) {
		e.Kind = kindOf(m, r.StatusCode, r.ErrorCode)
		e.RetryAfter = retryAfter(r.RawResponse)
		e.Code = responseError{r}.Error()
		e.Err = addErrGone(r.ErrorCode, responseError{r})
	}

	return e
}

// addErrGone adds storage.ErrGone to err's chain if the code means that the table, queue or
// container does not exist.
func addErrGone(code string, err error) error {
	switch code {
	case "TableNotFound", "QueueNotFound", "ContainerNotFound":
		return fmt.Errorf("%w: %w", storage.ErrGone, err)
	}
	return err
}

// responseError is a ResponseError that prints as one line, without the answer's body.
type responseError struct{ r *azcore.ResponseError }

func (a responseError) Error() string { return fmt.Sprintf("%d %s", a.r.StatusCode, a.r.ErrorCode) }
func (a responseError) Unwrap() error { return a.r }

// kindOf returns the kind for a status and an error code. It looks at the code first, because a
// code is more specific.
func kindOf(m callClass, status int, code string) storage.Kind {
	switch code {
	case "TableNotFound", "QueueNotFound", "ContainerNotFound", "ContainerDisabled",
		"QueueDisabled",
		"TableBeingDeleted", "QueueBeingDeleted", "ContainerBeingDeleted":
		// The table, queue or container itself is missing or disabled, so storage did nothing.
		return storage.Unavailable

	case "PopReceiptMismatch":
		return storage.NotFound
	case "LeaseIdMissing", "LeaseIdMismatchWithBlobOperation":
		// The status is 412, but the blob has no other version: another client holds a lease on it.
		return storage.Conflict
	case "EntityTooLarge", "PropertyValueTooLarge", "RequestBodyTooLarge", "MessageTooLarge",
		"ContentLengthTooLarge":
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
	case http.StatusUnauthorized, http.StatusForbidden:
		return storage.Denied
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return storage.Throttled
	}

	if status >= 500 || status == http.StatusRequestTimeout || status < 300 {
		return m.ambiguousKind() // a status below 300 means that the answer could not be read
	}

	return storage.Other
}

// toObjectError converts an error of the SDK for the read of one blob or file. Storage's definite
// refusals of such a read concern this object: for example it is archived (409 BlobArchived), or
// encrypted with a key that the caller did not send (409 BlobUsesCustomerSpecifiedEncryption). The
// exceptions are 401 and 403, which can concern the caller.
func toObjectError(op string, err error) error {
	err = toStorageError(op, readCall, err)
	var e *storage.Error
	if errors.As(err, &e) && (e.Kind == storage.Conflict || e.Kind == storage.TooLarge ||
		e.Kind == storage.Other) {
		e.Kind = storage.Unreadable
	}
	return err
}

// retryAfter returns the pause that storage asks for; 0 = none, or unreadable. The header
// Retry-After has a number of seconds or a date.
func retryAfter(r *http.Response) time.Duration {
	if r == nil {
		return 0
	}

	for _, header := range []struct {
		name string
		unit time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"X-Ms-Retry-After-Ms", time.Millisecond},
		{"Retry-After", time.Second}} {
		if n, err := strconv.Atoi(r.Header.Get(header.name)); err == nil && n > 0 {
			return time.Duration(n) * header.unit
		}
	}

	at, err := http.ParseTime(r.Header.Get("Retry-After"))
	now, err2 := http.ParseTime(r.Header.Get("Date"))
	if err != nil || err2 != nil {
		return 0
	}

	return max(0, at.Sub(now))
}
