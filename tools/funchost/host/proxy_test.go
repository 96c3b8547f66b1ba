package host

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// refusing is a transport whose first calls find no listener.
type refusing struct {
	left  int    // number of calls that still fail
	tries int    // number of calls so far
	got   string // body of the call that succeeded
}

func (f *refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	defer func() { _ = r.Body.Close() }() // a transport closes the body even if the call fails
	f.tries++
	if f.left--; f.left >= 0 {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}

	body, err := io.ReadAll(r.Body)
	f.got = string(body)

	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, err
}

// closable is a body whose Read fails after Close.
type closable struct {
	io.Reader
	isClosed bool
}

func (c *closable) Close() error {
	c.isClosed = true
	return nil
}

func (c *closable) Read(p []byte) (int, error) {
	if c.isClosed {
		return 0, http.ErrBodyReadAfterClose
	}
	return c.Reader.Read(p)
}

func TestRepeatTransport_HandlerDoesNotListen(t *testing.T) {
	t.Parallel()

	// short is the sum of the first three pauses between tries, and long is the sum of all nine
	// pauses.
	const short, long = 300 * time.Millisecond, 1750 * time.Millisecond
	for _, c := range []struct {
		refusals, tries int
		took            time.Duration
		ok              bool
	}{{0, 1, 0, true}, {3, 4, short, true}, {9, 10, long, true}, {10, 10, long, false}} {
		synctest.Test(t, func(t *testing.T) {
			f, start := &refusing{left: c.refusals}, time.Now()
			body := &closable{Reader: strings.NewReader("body")}
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1", body)
			if err != nil {
				t.Fatal(err)
			}

			_, err = repeatTransport{first: f}.RoundTrip(r)
			took, got := time.Since(start), f.got
			if (err == nil) != c.ok || f.tries != c.tries || took != c.took ||
				c.ok && got != "body" {
				t.Errorf("%d tries in %v, %q, %v; want %+v", f.tries, took, got, err, c)
			}
		})
	}
}
