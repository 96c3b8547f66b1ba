package httpio

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/weir"
)

const (
	// intakeWait is how long a request waits for room before it is refused, and intakeRetry
	// when it may come again.
	intakeWait  = 5 * time.Second
	intakeRetry = 2 * time.Second
	// bodyTimeout bounds the time in which one body is read: a sender that stalls must not keep
	// its room.
	bodyTimeout = time.Minute
	// Until it is filed, a body is in memory as it came, compressed, in a row, and in the request
	// to storage; each request takes requestBytes besides.
	copiesKept   = 4
	requestBytes = 8 << 10
)

// Intake bounds the memory of all bodies that are received at a time: room for a body is
// taken before its first byte is read. Safe for concurrent use.
type Intake struct {
	room *semaphore.Weighted
	size int64
}

// NewIntake makes an Intake of a size in bytes, or of one body of maxBody bytes if that needs
// more.
func NewIntake(size, maxBody int64) *Intake {
	size = max(size, weighBody(maxBody))
	return &Intake{room: semaphore.NewWeighted(size), size: size}
}

func weighBody(length int64) int64 { return copiesKept*length + requestBytes }

// ReadBody reads a request's body of up to limit bytes once there is room for it. The caller
// calls release, which is never nil, when it no longer needs the body. If there is no room, the
// error is Unavailable, and nothing was read.
func (i *Intake) ReadBody(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(), err error) {
	none := func() {}
	if r.ContentLength > limit {
		return nil, none, tooLarge(limit)
	}
	length := r.ContentLength
	if length < 0 {
		length = limit // the request has no Content-Length
	}
	weight := min(weighBody(length), i.size)
	if err := i.take(r.Context(), weight); err != nil {
		return nil, none, err
	}
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyTimeout)) // fails where there is no connection: in a test
	body, err = ReadBody(w, r, limit)
	control.SetReadDeadline(time.Time{})
	return body, func() { i.room.Release(weight) }, err
}

func (i *Intake) take(ctx context.Context, weight int64) error {
	if i.room.TryAcquire(weight) {
		return nil // nearly always: without a timer
	}
	limited, cancel := context.WithTimeout(ctx, intakeWait)
	defer cancel()
	if err := i.room.Acquire(limited, weight); err != nil {
		return &weir.Error{Kind: weir.Unavailable, Op: "intake", Message: "too many bodies are being received; this message was not filed, send it again", RetryAfter: intakeRetry, Err: err}
	}
	return nil
}
