package httpio

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/weir"
)

const (
	// readWait is the longest time for which a request waits for the memory of a body, and
	// readRetry the Retry-After if it gets none.
	readWait, readRetry = 5 * time.Second, 2 * time.Second
	// readCopies is the number of copies of a stored body in memory while it is read: as stored and
	// as text.
	readCopies = 2
)

// Reads limits the memory of the stored bodies that are read at the same time, for an answer or for
// a page. A Reads is safe for concurrent use.
type Reads struct{ free *semaphore.Weighted }

// NewReads returns a Reads for as many bodies of maxBody bytes as have room in "size" bytes, and
// for one at least.
func NewReads(size, maxBody int64) *Reads {
	return &Reads{semaphore.NewWeighted(max(size/(readCopies*max(maxBody, 1)), 1))}
}

// Take waits for the memory of one body. The caller must call done when the body is no longer
// needed; done is never nil. If no memory becomes free in time, the error is Unavailable.
func (r *Reads) Take(ctx context.Context) (done func(), err error) {
	limited, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()

	if err := r.free.Acquire(limited, 1); err != nil {
		return func() {}, &weir.Error{Kind: weir.Unavailable, Op: "reads",
			RetryAfter: readRetry, Err: err,
			Message: "too many bodies are being read at the moment; try again"}
	}

	return func() { r.free.Release(1) }, nil
}

// Limit returns a handler that takes the memory of a body before it calls h, and frees it when h
// has returned.
func (r *Reads) Limit(logger *slog.Logger, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		done, err := r.Take(request.Context())
		defer done()

		if err != nil {
			WriteError(w, request, logger, err)
			return
		}

		h.ServeHTTP(w, request)
	})
}
