package httpio

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"weir/internal/weir"
)

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
