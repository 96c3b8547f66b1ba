package httpio_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
)

// untouched is a body that must not be read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("the body was read, want the request refused before a read")
	return 0, io.EOF
}

func newPost(body io.Reader, length int64) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.ContentLength = length
	return r
}

const kib = 1 << 10

// The first body takes all the memory of the intake, so the intake refuses the second body without reading it. A body
// of unknown length takes as much memory as a body of the largest size.
func TestIntake_ReadBody_RefusesBeforeReading(t *testing.T) {
	t.Parallel()
	for name, length := range map[string]int64{"KnownLength": 10 * kib, "UnknownLength": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				intake := httpio.NewIntake(48*kib, kib)
				_, release, err := intake.ReadBody(httptest.NewRecorder(),
					newPost(strings.NewReader(strings.Repeat("x", 10*kib)), length), 10*kib)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_, none, err := intake.ReadBody(httptest.NewRecorder(), newPost(untouched{t}, 1), 10*kib)
				var e *weir.Error
				if !errors.As(err, &e) || e.Kind != weir.Unavailable || e.RetryAfter < time.Second {
					t.Errorf("got %#v, want Unavailable with a RetryAfter of at least 1s", err)
				}
				if waited := time.Since(began); waited != 5*time.Second {
					t.Errorf("got a wait of %s, want 5s", waited)
				}
				none()
				release()
				body, release, err := intake.ReadBody(httptest.NewRecorder(), newPost(strings.NewReader("xyz"), 3),
					10*kib)
				if err != nil || string(body) != "xyz" {
					t.Errorf("ReadBody with free memory = %q, %v, want \"xyz\" and no error", body, err)
				}
				release()
			})
		})
	}
}

func TestIntake_ReadBody_WaitsItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		intake, began := httpio.NewIntake(48*kib, kib), time.Now()
		var finished []time.Duration
		done := make(chan time.Duration)
		for range 4 {
			go func() {
				_, release, err := intake.ReadBody(httptest.NewRecorder(),
					newPost(strings.NewReader(strings.Repeat("x", 10*kib)), 10*kib), 10*kib)
				defer release()
				if err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				done <- time.Since(began)
			}()
		}
		for range 4 {
			finished = append(finished, <-done)
		}
		for i, at := range finished {
			if want := time.Duration(i+1) * time.Second; at != want {
				t.Errorf("body %d was read after %s, want %s, because the memory is for one body at a time", i+1, at,
					want)
			}
		}
	})
}

// A body of the largest size fits if no other body is in memory, even if it needs more than the memory size that
// NewIntake gets.
func TestIntake_ReadBody_OneOfTheLargestSizeAlwaysFits(t *testing.T) {
	t.Parallel()
	intake := httpio.NewIntake(1, 10*kib)
	for range 2 {
		body, release, err := intake.ReadBody(httptest.NewRecorder(),
			newPost(strings.NewReader(strings.Repeat("x", 10*kib)), 10*kib), 10*kib)
		if err != nil || len(body) != 10*kib {
			t.Fatalf("got %d bytes, %v; want %v bytes and no error", len(body), err, 10*kib)
		}
		release()
	}
}

func TestIntake_ReadBody_ReleasesMemoryAfterAnError(t *testing.T) {
	t.Parallel()
	intake := httpio.NewIntake(1, kib)
	for name, c := range map[string]struct {
		r    *http.Request
		kind weir.Kind
	}{
		"SaysItIsTooLarge": {newPost(untouched{t}, kib+1), weir.TooLarge},
		"IsTooLarge":       {newPost(strings.NewReader(strings.Repeat("x", kib+1)), -1), weir.TooLarge},
		"BreaksOff":        {newPost(io.MultiReader(strings.NewReader("x"), broken{}), 2), weir.Malformed},
	} {
		_, release, err := intake.ReadBody(httptest.NewRecorder(), c.r, kib)
		release()
		if weir.KindOf(err) != c.kind {
			t.Errorf("%s: got %v, want %v", name, err, c.kind)
		}
	}
	_, release, err := intake.ReadBody(httptest.NewRecorder(), newPost(strings.NewReader("x"), 1), kib)
	release()
	if err != nil {
		t.Errorf("ReadBody after the refused ones = %v, want no error", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A stalled sender occupies memory for a minute at most. The limit does not apply after the body is read, so the answer
// can take longer than a minute.
func TestIntake_ReadBody_EndsAStalledSender(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		intake := httpio.NewIntake(1, kib)
		got := make(chan error, 2)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, release, err := intake.ReadBody(w, r, kib)
			release()
			select {
			case <-time.After(5 * time.Minute): // the time that the answer takes
			case <-r.Context().Done():
				err = errors.Join(err, r.Context().Err())
			}
			got <- err
		})}
		ours, theirs := net.Pipe()
		l := &oneConn{conn: theirs, closed: make(chan struct{})}
		go server.Serve(l)
		io.WriteString(ours, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nxy")
		if err := <-got; err != nil {
			t.Errorf("reading the body of a request whose answer takes 5m = %v, want no error", err)
		}
		if resp, err := http.ReadResponse(bufio.NewReader(ours), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("got the answer %v, %v; want 200", resp, err)
		}
		began := time.Now()
		io.WriteString(ours, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nx")
		if err := <-got; weir.KindOf(err) != weir.Malformed || time.Since(began) > 6*time.Minute {
			t.Errorf("a body that stalls: got %v after %s, want an error of kind Malformed and at most 6m", err,
				time.Since(began))
		}
		ours.Close()
		server.Close()
		synctest.Wait()
	})
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	close(l.closed)
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
