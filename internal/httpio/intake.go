package httpio

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/weir"
)

const (
	// intakeWait is the longest time for which a request waits for memory before it is refused. intakeRetry is the
	// Retry-After of the refusal.
	intakeWait  = 5 * time.Second
	intakeRetry = 2 * time.Second
	// Until a body is stored, bodyCopies copies of it are in memory: as received, compressed, in a row, and in
	// the request to storage. Each request also needs requestBytes.
	bodyCopies   = 4
	requestBytes = 8 << 10
)

// Intake limits the memory of all bodies that are received at the same time. It reserves memory for a body
// before it reads the body's first byte. It is safe for concurrent use.
type Intake struct {
	memory *semaphore.Weighted
	size   int64
}

// NewIntake returns an Intake of size bytes. If one body of maxBody bytes needs more memory, the Intake has
// memory for exactly one such body.
func NewIntake(size, maxBody int64) *Intake {
	size = max(size, estimateMemory(maxBody))
	return &Intake{memory: semaphore.NewWeighted(size), size: size}
}

func estimateMemory(length int64) int64 { return bodyCopies*length + requestBytes }

// ReadBody reads a request's body of up to "limit" bytes as soon as memory for it is free. The caller calls release,
// which is never nil, when it no longer needs the body. If no memory becomes free in time, the error is Unavailable,
// and ReadBody has read nothing.
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

// Reserve reserves memory for a request whose body is never in memory as a whole. The caller calls release,
// which is never nil. If no memory becomes free in time, the error is Unavailable.
func (i *Intake) Reserve(ctx context.Context, size int64) (release func(), err error) {
	weight := min(size, i.size)
	if err := i.reserveMemory(ctx, weight); err != nil {
		return func() {}, err
	}
	return func() { i.memory.Release(weight) }, nil
}

func (i *Intake) reserveMemory(ctx context.Context, weight int64) error {
	if i.memory.TryAcquire(weight) {
		return nil // nearly always the memory is free, and no timer is needed
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
