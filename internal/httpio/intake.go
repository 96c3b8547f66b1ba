package httpio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/unpack"
	"weir/internal/weir"
)

const (
	// intakeWait is the longest time for which a request waits for memory, all its waits together.
	// After this time the request is refused, with intakeRetry as Retry-After.
	intakeWait  = 5 * time.Second
	intakeRetry = 2 * time.Second
	// bodyCopies is the number of copies of a body in memory: as received, compressed, in a row,
	// and in the request to storage. Each request also needs requestBytes.
	bodyCopies   = 4
	requestBytes = 8 << 10
	// Memory is reserved as the bytes of a body arrive: firstStep before the first byte, then twice
	// the last step each time, and steps of largestStep from then on. So a sender that declares a
	// large body and sends little reserves little, and a body of 1 MiB needs 20 reservations.
	firstStep, largestStep = 4 << 10, 64 << 10
	// smallBody is the largest body that can take memory of the reserve for small bodies. Most
	// messages are smaller.
	smallBody = largestStep
	// The reserve is 1/smallParts of the memory, and has room for leastSmall bodies, so that a few
	// large uploads cannot refuse all posts, however little memory the instance has.
	smallParts, leastSmall = 4, 16
)

// Intake limits the memory of all bodies that are received at the same time. It reserves memory
// before it reads the bytes that need it. The memory has three parts:
//
//   - common: for all bodies.
//   - small: for bodies of up to smallBody bytes, if the common memory is used up. Larger bodies
//     never wait for it, so they cannot delay small ones.
//   - last: for the rest of one body of the largest size, if the common memory is used up. So one
//     of the bodies that wait for memory while they have some can always be finished.
//
// An Intake is safe for concurrent use.
type Intake struct {
	common, small *semaphore.Weighted
	last          *semaphore.Weighted // weight 1: the right to use the memory of the part "last"
	size          int64               // of the part "common"
}

// NewIntake returns an Intake with "size" bytes of memory. If one body of maxBody bytes and some
// small bodies need more than that, the Intake has memory for exactly these.
func NewIntake(size, maxBody int64) *Intake {
	rest := max(size-estimateMemory(maxBody), 2*leastSmall*estimateMemory(smallBody))
	small := max(rest/smallParts, leastSmall*estimateMemory(smallBody))
	return &Intake{common: semaphore.NewWeighted(rest - small), small: semaphore.NewWeighted(small),
		last: semaphore.NewWeighted(1), size: rest - small}
}

func estimateMemory(length int64) int64 { return bodyCopies*length + requestBytes }

// ReadBody reads a request's body of up to "limit" bytes, and reserves memory as the bytes arrive.
// The caller must call release when the body is no longer needed, also after an error; release is
// never nil. The error is TooLarge, Malformed, Unavailable or, for a Content-Encoding, Unsupported.
// Unavailable means that no memory became free in time.
func (i *Intake) ReadBody(w http.ResponseWriter, r *http.Request, limit int64) (body []byte,
	release func(), err error) {
	if err := weir.CheckContentEncoding(r.Header["Content-Encoding"]...); err != nil {
		return nil, func() {}, err
	}
	return i.readAsSent(w, r, limit)
}

// ReadUnpacked is ReadBody for a body that may be compressed by gzip. Both the body as it was sent
// and the unpacked body may have up to "limit" bytes. If asSent is not nil, ReadUnpacked calls it
// with the body as it was sent, for the check of a signature, and unpacks nothing if it returns an
// error.
func (i *Intake) ReadUnpacked(w http.ResponseWriter, r *http.Request, limit int64,
	asSent func([]byte) error) (body []byte, release func(), err error) {
	isGzip, err := weir.ReadContentEncoding(r.Header["Content-Encoding"]...)
	if err != nil {
		return nil, func() {}, err
	}

	packed, releasePacked, err := i.readAsSent(w, r, limit)
	if err == nil && asSent != nil {
		err = asSent(packed)
	}

	if err != nil || !isGzip {
		return packed, releasePacked, err
	}

	body, releaseUnpacked, err := i.unpack(r.Context(), packed, limit)

	return body, func() {
		releaseUnpacked()
		releasePacked()
	}, err
}

// unpack reserves memory as the bytes of the content arrive.
func (i *Intake) unpack(ctx context.Context, packed []byte, limit int64) (body []byte,
	release func(), err error) {
	held := &reservation{intake: i}
	content := unpack.NewReader(bytes.NewReader(packed), limit)
	for step := int64(firstStep); ; step = min(2*step, largestStep) {
		if err := held.grow(ctx, int64(len(body))+step); err != nil {
			return nil, held.release, err
		}

		part, err := io.ReadAll(io.LimitReader(content, step))
		if err != nil {
			return nil, held.release, err
		}

		if body = append(body, part...); int64(len(part)) < step {
			return body, held.release, nil
		}
	}
}

// readAsSent is ReadBody for any Content-Encoding.
func (i *Intake) readAsSent(w http.ResponseWriter, r *http.Request, limit int64) (body []byte,
	release func(), err error) {
	if r.ContentLength > limit {
		return nil, func() {}, tooLargeError(limit)
	}

	held := &reservation{intake: i}
	pace := newPace(w)
	defer pace.end()
	content := http.MaxBytesReader(w, r.Body, limit)
	var parts [][]byte
	var length int64
	for step := int64(firstStep); ; step = min(2*step, largestStep) {
		next := length + step
		if r.ContentLength >= 0 {
			next = min(next, r.ContentLength)
			step = max(next+1-length, 1) // one more byte finds the end of the body
		}

		waitBegan := time.Now()
		if err := held.grow(r.Context(), next); err != nil {
			return nil, held.release, err
		}

		pace.extend(time.Since(waitBegan))
		part, isEnd, err := pace.readPart(content, step)
		if err != nil {
			return nil, held.release, describeReadError(err, limit)
		}

		parts, length = append(parts, part), length+int64(len(part))
		if isEnd {
			return bytes.Join(parts, nil), held.release, nil
		}
	}
}

// reservation is the memory of one body.
type reservation struct {
	intake        *Intake
	waited        time.Duration // of intakeWait
	common, small int64         // bytes of these parts of the intake
	isLast        bool          // the body has the memory of the part "last"
}

// grow reserves memory for a body that has "length" bytes by now. If no memory becomes free in
// time, the error is Unavailable.
func (h *reservation) grow(ctx context.Context, length int64) error {
	i, more := h.intake, estimateMemory(length)-h.common-h.small
	if h.isLast || more <= 0 {
		return nil
	}

	if i.common.TryAcquire(more) {
		h.common += more
		return nil
	}

	if length <= smallBody {
		return h.wait(ctx, func(limited context.Context) error {
			err := i.small.Acquire(limited, more)
			if err == nil {
				h.small += more
			}
			return err
		})
	}

	if i.last.TryAcquire(1) {
		h.becomeLast()
		return nil
	}

	return h.wait(ctx, func(limited context.Context) error { return h.growLarge(limited, more) })
}

// largeRetry is the pause of a large body between two tries to get memory. It waits for either of
// two parts of the memory, and takes the one that is free first.
const largeRetry = 20 * time.Millisecond

// growLarge waits until common memory, or the memory of the part "last", is free.
func (h *reservation) growLarge(ctx context.Context, more int64) error {
	i := h.intake
	more += h.small // a large body frees the memory for small bodies
	for {
		switch {
		case i.common.TryAcquire(more):
			h.common += more
			i.small.Release(h.small)
			h.small = 0
			return nil

		case i.last.TryAcquire(1):
			h.becomeLast()
			return nil
		}

		select {
		case <-time.After(largeRetry):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// becomeLast assigns the memory of the part "last" to the body, and returns the memory that it had.
func (h *reservation) becomeLast() {
	h.isLast = true
	h.intake.common.Release(h.common)
	h.intake.small.Release(h.small)
	h.common, h.small = 0, 0
}

// wait calls acquire with a context that ends when the body has waited for intakeWait.
func (h *reservation) wait(ctx context.Context, acquire func(context.Context) error) error {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, intakeWait-h.waited)
	defer cancel()
	err := acquire(limited)
	h.waited += time.Since(began)
	if err != nil {
		return noMemoryError(err)
	}

	return nil
}

func (h *reservation) release() {
	h.intake.common.Release(h.common)
	h.intake.small.Release(h.small)
	if h.isLast {
		h.intake.last.Release(1)
	}
	*h = reservation{intake: h.intake}
}

// Reserve reserves "size" bytes of memory for a request whose body is never in memory as a whole.
// The caller must call release when the memory is no longer needed; release is never nil. If no
// memory becomes free in time, the error is Unavailable.
func (i *Intake) Reserve(ctx context.Context, size int64) (release func(), err error) {
	h := &reservation{intake: i}
	weight := min(size, i.size)
	if i.common.TryAcquire(weight) {
		h.common = weight // the usual case: memory is free, and no timer is needed
		return h.release, nil
	}

	err = h.wait(ctx, func(limited context.Context) error { return i.common.Acquire(limited, weight) })
	if err != nil {
		return func() {}, err
	}

	h.common = weight

	return h.release, nil
}

func noMemoryError(err error) error {
	return &weir.Error{Kind: weir.Unavailable, Op: "intake",
		Message:    "too many bodies are being received; this message was not filed, send it again",
		RetryAfter: intakeRetry, Err: err}
}

const (
	// A sender has patience to begin, and must then send leastRate bytes a second on average. A
	// sender that is slower occupies memory and a connection for too long: 14 of them, with 300
	// bytes a second each, once refused all posts for a minute. leastRate is the upload of a poor
	// mobile network (256 kbit/s), and patience covers its pauses.
	patience  = 5 * time.Second
	leastRate = 32 << 10
)

// Pace limits the time of reading the body of one request: the time passes when fewer bytes than
// leastRate have arrived.
type pace struct {
	control *http.ResponseController
	began   time.Time // plus the time in which the sender had to wait for Weir
	read    int64     // bytes
	endsAt  time.Time // when the whole body must have arrived; zero = no such limit
}

func newPace(w http.ResponseWriter) *pace {
	return &pace{control: http.NewResponseController(w), began: time.Now()}
}

// extend adds to the time of the sender, because it had to wait for Weir.
func (p *pace) extend(waited time.Duration) { p.began = p.began.Add(waited) }

// setDeadline sets the moment until which the next bytes must arrive.
func (p *pace) setDeadline() {
	until := p.began.Add(patience + time.Duration(float64(p.read)/leastRate*float64(time.Second)))
	if !p.endsAt.IsZero() && p.endsAt.Before(until) {
		until = p.endsAt
	}
	p.control.SetReadDeadline(until) // fails in tests without a connection
}

// end removes the limit. The answer can take longer than the body.
func (p *pace) end() { p.control.SetReadDeadline(time.Time{}) }

// readPart reads "size" bytes of a body, or fewer at the end of the body.
func (p *pace) readPart(body io.Reader, size int64) (part []byte, isEnd bool, err error) {
	part = make([]byte, size)
	n := 0
	for n < len(part) {
		p.setDeadline()
		count, err := body.Read(part[n:])
		n += count
		p.read += int64(count)
		if err == io.EOF { //nolint:errorlint // io.Reader returns io.EOF itself
			return part[:n], true, nil
		}
		if err != nil {
			return nil, false, err
		}
	}

	return part, false, nil
}

// NewPacedReader returns a reader of a request's body that fails if the sender is too slow: it has
// five seconds to begin, and must then send 32 KiB a second on average, and the whole body before
// the time "limit" is over. The time in which the caller does not read counts for the sender,
// because the body can wait in buffers meanwhile. The caller must call end after the last read.
func NewPacedReader(w http.ResponseWriter, r *http.Request, limit time.Duration) (body io.Reader,
	end func()) {
	p := newPace(w)
	p.endsAt = p.began.Add(limit)
	return &pacedReader{pace: p, body: r.Body, idleSince: p.began}, p.end
}

type pacedReader struct {
	*pace
	body      io.Reader
	idleSince time.Time // end of the last Read
}

// Read implements io.Reader.
func (r *pacedReader) Read(b []byte) (int, error) {
	r.extend(time.Since(r.idleSince))
	r.setDeadline()
	n, err := r.body.Read(b)
	r.read += int64(n)
	r.idleSince = time.Now()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = tooSlowError(err)
	}

	return n, err
}

func tooSlowError(err error) error {
	return &weir.Error{Kind: weir.Malformed, Op: "read body", Err: err,
		Message: fmt.Sprintf("the body came too slowly: fewer than %d bytes a second, after %s",
			leastRate, patience)}
}

// describeReadError turns the error of reading a body of up to "limit" bytes into an error of kind
// TooLarge or Malformed.
func describeReadError(err error, limit int64) error {
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return tooLargeError(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return tooSlowError(err)
	}

	return &weir.Error{Kind: weir.Malformed, Op: "read body",
		Message: "the body ended early", Err: err}
}

const (
	// turnsAtOnce is the number of turns at the same time. A turn keeps a core busy for up to a
	// second; an instance has one or two cores, which deliveries need, too.
	turnsAtOnce = 2
	// turnWait is the longest time for which a request waits for a turn, and turnRetry the
	// Retry-After if it gets none.
	turnWait, turnRetry = 5 * time.Second, 5 * time.Second
)

// Turns limits the requests of operators that need much memory and much of a core for one message,
// such as the comparison of two bodies. A Turns is safe for concurrent use.
type Turns struct {
	turns  *semaphore.Weighted
	memory *semaphore.Weighted
	size   int64 // of memory
}

// NewTurns returns a Turns with "size" bytes of memory for all turns together.
func NewTurns(size int64) *Turns {
	return &Turns{turns: semaphore.NewWeighted(turnsAtOnce), memory: semaphore.NewWeighted(size),
		size: size}
}

// Take waits for a turn, and for "size" bytes of memory. A turn that needs more memory than there
// is waits until it is the only one. The caller must call done at the end of the turn; done is
// never nil. If no turn or no memory becomes free in time, the error is Unavailable.
func (t *Turns) Take(ctx context.Context, size int64) (done func(), err error) {
	none := func() {}
	limited, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	if err := t.turns.Acquire(limited, 1); err != nil {
		return none, busyError(err)
	}

	size = min(size, t.size)
	if err := t.memory.Acquire(limited, size); err != nil {
		t.turns.Release(1)
		return none, busyError(err)
	}

	return func() {
		t.memory.Release(size)
		t.turns.Release(1)
	}, nil
}

func busyError(err error) error {
	return &weir.Error{Kind: weir.Unavailable, Op: "turns", RetryAfter: turnRetry, Err: err,
		Message: "too many comparisons and previews are being made at the moment; try again"}
}

// NameSetting adds the name of the setting in weir.yaml that limits bodies to an error of kind
// TooLarge. It returns any other error unchanged.
func NameSetting(err error, setting string) error {
	var e *weir.Error
	if !errors.As(err, &e) || e.Kind != weir.TooLarge {
		return err
	}

	named := *e
	named.Message += " (" + setting + " in weir.yaml)"
	return &named
}
