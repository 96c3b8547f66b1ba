package httpio

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/weir"
)

const (
	// intakeWait is the longest time for which a request waits for memory. After this time the request is refused, with
	// intakeRetry as Retry-After.
	intakeWait  = 5 * time.Second
	intakeRetry = 2 * time.Second
	// bodyCopies is the number of copies of a body in memory: as received, compressed, in a row, and in the request to
	// storage. Each request also needs requestBytes.
	bodyCopies   = 4
	requestBytes = 8 << 10
)

// Intake limits the memory of all bodies that are received at the same time. It reserves memory for a body before it
// reads the first byte. An Intake is safe for concurrent use.
type Intake struct {
	memory *semaphore.Weighted
	size   int64
}

// NewIntake returns an Intake with "size" bytes of memory. If one body of maxBody bytes needs more than that, the
// Intake has memory for exactly one such body.
func NewIntake(size, maxBody int64) *Intake {
	size = max(size, estimateMemory(maxBody))
	return &Intake{memory: semaphore.NewWeighted(size), size: size}
}

func estimateMemory(length int64) int64 { return bodyCopies*length + requestBytes }

// ReadBody reads a request's body of up to "limit" bytes as soon as memory for the body is free. The caller must call
// release when the body is no longer needed, also after an error; release is never nil. The error is TooLarge,
// Malformed or Unavailable. Unavailable means that no memory became free in time, and that ReadBody has read nothing.
func (i *Intake) ReadBody(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(),
	err error) {
	none := func() {}
	if r.ContentLength > limit {
		return nil, none, tooLargeError(limit)
	}
	length := r.ContentLength
	if length < 0 {
		length = limit // because the request has no Content-Length
	}
	weight := min(estimateMemory(length), i.size)
	if err := i.reserveMemory(r.Context(), weight); err != nil {
		return nil, none, err
	}
	body, err = ReadBody(w, r, limit)
	return body, func() { i.memory.Release(weight) }, err
}

// Reserve reserves "size" bytes of memory for a request whose body is never in memory as a whole. The caller must call
// release when the memory is no longer needed; release is never nil. If no memory becomes free in time, the error is
// Unavailable.
func (i *Intake) Reserve(ctx context.Context, size int64) (release func(), err error) {
	weight := min(size, i.size)
	if err := i.reserveMemory(ctx, weight); err != nil {
		return func() {}, err
	}
	return func() { i.memory.Release(weight) }, nil
}

func (i *Intake) reserveMemory(ctx context.Context, weight int64) error {
	if i.memory.TryAcquire(weight) {
		return nil // the usual case: memory is free, and no timer is needed
	}
	limited, cancel := context.WithTimeout(ctx, intakeWait)
	defer cancel()
	if err := i.memory.Acquire(limited, weight); err != nil {
		return &weir.Error{Kind: weir.Unavailable, Op: "intake",
			Message:    "too many bodies are being received; this message was not filed, send it again",
			RetryAfter: intakeRetry, Err: err}
	}
	return nil
}
