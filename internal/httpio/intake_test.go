package httpio_test

import (
	"bufio"
	"errors"
	"fmt"
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

const mib = 1 << 20

// upload is a body that the test sends piece by piece.
type upload struct {
	pieces chan []byte
	rest   []byte
}

func newUpload() *upload { return &upload{pieces: make(chan []byte)} }

// send sends n bytes, and returns when the reader has asked for more or holds the bytes.
func (u *upload) send(n int) {
	u.pieces <- make([]byte, n)
	synctest.Wait()
}

func (u *upload) Read(p []byte) (int, error) {
	if len(u.rest) == 0 {
		next, isOpen := <-u.pieces
		if !isOpen {
			return 0, io.EOF
		}
		u.rest = next
	}

	n := copy(p, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

// reading is a call of ReadBody in the background.
type reading struct {
	*upload
	result chan error // of ReadBody
	hold   chan struct{}
}

// startReading reads a body of this length in the background, and keeps its memory until hold is
// closed.
func startReading(intake *httpio.Intake, length int64) *reading {
	r := &reading{upload: newUpload(), result: make(chan error, 1), hold: make(chan struct{})}
	go func() {
		_, release, err := intake.ReadBody(httptest.NewRecorder(),
			newPost(r.upload, length), 100*mib)
		r.result <- err
		<-r.hold
		release()
	}()

	synctest.Wait()
	return r
}

func (r *reading) end() {
	close(r.hold)
	close(r.pieces)
	synctest.Wait()
}

// readAtOnce reads a body that has arrived as a whole. It returns the time that ReadBody took.
func readAtOnce(intake *httpio.Intake, size int) (release func(), took time.Duration, err error) {
	began := time.Now()
	_, release, err = intake.ReadBody(httptest.NewRecorder(),
		newPost(strings.NewReader(strings.Repeat("x", size)), int64(size)), 100*mib)
	return release, time.Since(began), err
}

// A sender that declares a large body reserves memory only for the bytes that have arrived. So
// hundreds of senders that send little delay no other body.
func TestIntake_ReadBody_ReservesWhatArrives(t *testing.T) {
	t.Parallel()
	for name, length := range map[string]int64{"KnownLength": 10 * mib, "UnknownLength": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				intake := httpio.NewIntake(56*mib, 10*mib)
				var slow []*reading
				for range 300 {
					r := startReading(intake, length)
					r.send(300)
					slow = append(slow, r)
				}

				release, took, err := readAtOnce(intake, mib)
				if err != nil || took != 0 {
					t.Errorf("beside 300 senders that declare 10 MiB: a body of 1 MiB took %s, %v; want 0s and no error",
						took, err)
				}

				release()
				for _, r := range slow {
					r.end()
				}
			})
		})
	}
}

// Large bodies take all common memory, and further large ones wait for it. Small bodies use their
// reserve at once. The further large bodies are refused after five seconds.
func TestIntake_ReadBody_LargeBodiesDoNotDelaySmallOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		intake := httpio.NewIntake(56*mib, mib)
		var held []func()
		for {
			release, took, err := readAtOnce(intake, mib)
			if took > 0 {
				var e *weir.Error
				if !errors.As(err, &e) || e.Kind != weir.Unavailable ||
					e.RetryAfter < time.Second ||
					took != 5*time.Second {
					t.Errorf("got %v after %s, want Unavailable with a RetryAfter of at least 1s after 5s", err, took)
				}

				release()
				break
			}

			held = append(held, release)
		}

		if len(held) < 8 {
			t.Errorf("the memory was used up by %d bodies of 1 MiB, want 8 or more in 56 MiB",
				len(held))
		}

		waiting := startReading(intake, mib)
		waiting.send(mib / 2)

		for i := range 50 {
			release, took, err := readAtOnce(intake, 60*kib)
			if err != nil || took != 0 {
				t.Fatalf("small body %d took %s, %v; want 0s and no error", i+1, took, err)
			}
			held = append(held, release)
		}

		for _, release := range held {
			release()
		}

		waiting.send(mib / 2)
		waiting.end()
		if err := <-waiting.result; err != nil {
			t.Errorf("the large body that waited: got %v, want no error", err)
		}
	})
}

// Bodies that have a part of their memory wait for the rest, and together they have all of it. One
// of them can always be finished, and then the next one. So none is refused if each is finished
// within five seconds.
func TestIntake_ReadBody_BodiesThatWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		intake := httpio.NewIntake(1, 4*mib)
		var all []*reading
		for range 40 {
			all = append(all, startReading(intake, 4*mib))
		}

		for _, r := range all {
			go func() {
				r.pieces <- make([]byte, 40*kib)
				r.pieces <- make([]byte, 4*mib-40*kib)
				close(r.pieces)
			}()
			close(r.hold)
		}

		synctest.Wait()

		for i, r := range all {
			if err := <-r.result; err != nil {
				t.Errorf("body %d of those that wait for each other: got %v, want no error", i+1,
					err)
			}
		}

		synctest.Wait()
	})
}

// A sender that is slower than 32 KiB a second is cut off. It has five seconds to begin.
func TestIntake_ReadBody_LeastRate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bytes int           // in each step
		pause time.Duration // between two steps
		ends  time.Duration // when the sender is cut off; 0 = not at all
	}{
		"Silent":       {0, time.Second, 5 * time.Second},
		"Drips":        {300, time.Second, 5 * time.Second},
		"HalfTheRate":  {16 * kib, time.Second, 9 * time.Second},
		"TheRate":      {32 * kib, time.Second, 0},
		"BeginsSlowly": {160 * kib, 4900 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				took, status := sendSlowly(t, c.bytes, c.pause)
				isCutOff := status == http.StatusBadRequest
				if isCutOff != (c.ends > 0) ||
					isCutOff && (took < c.ends || took > c.ends+time.Second) {
					t.Errorf("got %d after %s, want the sender cut off after %s (0 = never)",
						status, took, c.ends)
				}
			})
		})
	}
}

// sendSlowly posts 640 KiB to an intake, "bytes" bytes after each pause. It returns the time until
// the answer, and the status.
func sendSlowly(t *testing.T, bytes int, pause time.Duration) (took time.Duration, status int) {
	t.Helper()
	const size = 640 * kib
	intake := httpio.NewIntake(1, size)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, release, err := intake.ReadBody(w, r, size)
		release()
		if err != nil {
			httpio.WriteError(w, r, quiet, err)
		}
	})}

	ours, theirs := net.Pipe()
	go server.Serve(&oneConn{conn: theirs, closed: make(chan struct{})})
	began, stop := time.Now(), make(chan struct{})
	go func() {
		fmt.Fprintf(ours, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
		for {
			select {
			case <-time.After(pause):
				if _, err := ours.Write(make([]byte, bytes)); err != nil {
					return
				}
			case <-stop:
				return
			}
		}
	}()

	resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
	if err != nil {
		t.Fatal(err)
	}

	took = time.Since(began)
	close(stop)
	ours.Close()
	server.Close()
	time.Sleep(time.Second) // net/http waits before it closes a connection with an unread body
	synctest.Wait()

	return took, resp.StatusCode
}

// A body of the largest size fits if no other body is in memory, even if it needs more than the
// memory size that NewIntake gets.
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
		"IsTooLarge": {newPost(strings.NewReader(strings.Repeat("x", kib+1)), -1),
			weir.TooLarge},
		"BreaksOff": {newPost(io.MultiReader(strings.NewReader("x"), broken{}), 2),
			weir.Malformed},
	} {
		_, release, err := intake.ReadBody(httptest.NewRecorder(), c.r, kib)
		release()
		if weir.KindOf(err) != c.kind {
			t.Errorf("%s: got %v, want %v", name, err, c.kind)
		}
	}

	_, release, err := intake.ReadBody(httptest.NewRecorder(),
		newPost(strings.NewReader("x"), 1), kib)
	release()
	if err != nil {
		t.Errorf("ReadBody after the refused ones = %v, want no error", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// The limit of the time does not apply after the body is read, so the answer can take longer.
func TestIntake_ReadBody_LeavesTimeForTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		intake := httpio.NewIntake(1, kib)
		server := &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, release, err := intake.ReadBody(w, r, kib)
				release()

				select {
				case <-time.After(5 * time.Minute): // the time that the answer takes
				case <-r.Context().Done():
					err = errors.Join(err, r.Context().Err())
				}

				if err != nil {
					t.Errorf("reading the body of a request whose answer takes 5m = %v, want no error",
						err)
				}
			})}

		ours, theirs := net.Pipe()
		go server.Serve(&oneConn{conn: theirs, closed: make(chan struct{})})
		io.WriteString(ours, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nxy")

		if resp, err := http.ReadResponse(bufio.NewReader(ours), nil); err != nil ||
			resp.StatusCode != http.StatusOK {
			t.Errorf("got the answer %v, %v; want 200", resp, err)
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
