// Package unpack unpacks bodies that their sender compressed by gzip. It bounds what a small body
// can become.
package unpack

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"weir/internal/weir"
)

const (
	// maxRatio is the largest number of unpacked bytes for each packed byte. XML has 5 to 50; a
	// body of one repeated byte has 1,000.
	maxRatio = 200
	// freeBytes are not counted against maxRatio, because a small document can have any ratio.
	freeBytes = 1 << 20
)

// Reader is the unpacked content of a body. Its errors are a *weir.Error of the kind TooLarge or
// Malformed, or the error of the packed body's reader.
type Reader struct {
	packed   counter
	unzipped *gzip.Reader // nil before the first Read
	limit    int64
	length   int64 // unpacked bytes that were read
	err      error // the error of the last Read
}

// NewReader returns the content of a packed body, of at most limit bytes. It reads the packed body
// to its end before it returns io.EOF.
func NewReader(packed io.Reader, limit int64) *Reader {
	return &Reader{packed: counter{Reader: packed}, limit: limit}
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}

	n, err := r.read(p)
	r.length += int64(n)
	switch {
	case r.length > r.limit:
		n, r.err = 0, tooLargeError(fmt.Sprintf("the body is over %d bytes when it is unpacked",
			r.limit))
	case r.length > freeBytes && r.length > maxRatio*r.packed.length:
		n, r.err = 0, tooLargeError(fmt.Sprintf("the body unpacks to more than %d times its size",
			maxRatio))
	case err != nil:
		r.err = r.describe(err)
	}

	return n, r.err
}

func (r *Reader) read(p []byte) (n int, err error) {
	if r.unzipped == nil {
		if r.unzipped, err = gzip.NewReader(&r.packed); err != nil {
			if errors.Is(err, io.EOF) && r.packed.length > 0 {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}

	return r.unzipped.Read(p)
}

// gzipMagic is the beginning of each body that is compressed by gzip (RFC 1952, section 2.3.1).
const gzipMagic = "\x1f\x8b"

// describe returns the error of the packed body's reader as it is, and any other as one of the
// sender.
func (r *Reader) describe(err error) error {
	switch {
	case r.packed.failed != nil:
		return r.packed.failed
	case errors.Is(err, io.EOF):
		return io.EOF
	case !strings.HasPrefix(gzipMagic, string(r.packed.start)):
		return malformedError(
			"the Content-Encoding is gzip, and the body is not compressed by gzip")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return malformedError("the body is compressed by gzip, and ends early")
	}

	return malformedError("the body is not valid gzip")
}

// counter counts the bytes of a packed body, and keeps the error of its reader.
type counter struct {
	io.Reader
	length int64
	start  []byte // at most the first two bytes
	failed error  // except io.EOF
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.length += int64(n)
	c.start = append(c.start, p[:min(n, 2-len(c.start))]...)
	if err != nil && !errors.Is(err, io.EOF) {
		c.failed = err
	}
	return n, err
}

// All returns the content of a packed body, of at most limit bytes.
func All(packed []byte, limit int64) ([]byte, error) {
	return io.ReadAll(NewReader(bytes.NewReader(packed), limit))
}

func tooLargeError(message string) error {
	return &weir.Error{Kind: weir.TooLarge, Op: "unpack", Message: message}
}

func malformedError(message string) error {
	return &weir.Error{Kind: weir.Malformed, Op: "unpack", Message: message}
}
