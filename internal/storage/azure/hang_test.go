package azure_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/azure"
)

// hangBound is the longest allowed time of a call without progress.
const hangBound = 8 * time.Second

// trickle is a body that returns one byte per second. When no bytes are left, Read blocks until the
// request ends.
type trickle struct {
	ctx   context.Context
	bytes int
}

func (s *trickle) Read(p []byte) (int, error) {
	if s.bytes == 0 {
		<-s.ctx.Done()
		return 0, context.Cause(s.ctx)
	}

	s.bytes--
	time.Sleep(time.Second)
	p[0] = 'x'

	return 1, nil
}

func (s *trickle) Close() error { return nil }

// openStalled opens an account. Each request of the account gets an answer, and the body of the
// answer stalls after the given number of bytes.
func openStalled(t *testing.T, header http.Header, bytes int) *azure.Account {
	return openAccount(t, azure.Config{ConnectionString: connectTo("http://storage.test"),
		Transport: transport(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: header, ContentLength: -1,
				Body: &trickle{r.Context(), bytes}, Request: r}, nil
		})})
}

func TestRead_BodyOfTheAnswerHangs(t *testing.T) {
	t.Parallel()
	for name, call := range reads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := openStalled(t, http.Header{}, 2)
				began := time.Now()
				err := call(t.Context(), a)
				if took := time.Since(began); !storage.Is(err, storage.Unavailable) ||
					took > hangBound+2*time.Second {
					t.Errorf("err = %v after %s, want unavailable within %s", err, took,
						hangBound+2*time.Second)
				}
			})
		})
	}
}

func TestTransact_BodyOfTheAnswerHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := openStalled(t, http.Header{"Content-Type": {"multipart/mixed; boundary=b"}}, 2)
		began := time.Now()
		err := writes["transact"](t.Context(), a)
		if took := time.Since(began); !storage.Is(err, storage.Ambiguous) || took > hangBound {
			t.Errorf("err = %v after %s, want ambiguous within %s", err, took, hangBound)
		}
	})
}

func TestBlobs_GetGoesOnWhileBytesCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const seconds = 60
		a := openStalled(t, http.Header{}, seconds)
		began := time.Now()
		_, err := a.Bodies().Get(t.Context(), "b")
		if took := time.Since(began) - seconds*time.Second; err == nil || took < 0 ||
			took > hangBound {
			t.Errorf("err = %v %s after the last byte, want one within %s", err, took, hangBound)
		}
	})
}

func TestBlobs_PutGoesOnWhileBytesGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pieces = 30
		a := openAccount(t, azure.Config{ConnectionString: connectTo("http://storage.test"),
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				for piece := make([]byte, 1024); ; time.Sleep(time.Second) {
					if _, err := io.ReadFull(r.Body, piece); err != nil {
						return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{},
							Body: http.NoBody, Request: r}, r.Context().Err()
					}
				}
			})})
		if err := a.Bodies().Put(t.Context(), "b", bytes.Repeat([]byte("x"), pieces*1024)); err !=
			nil {
			t.Errorf("err = %v, want none: a piece went out each second", err)
		}
	})
}
