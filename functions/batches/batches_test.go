package batches_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"weir/functions/batches"
	"weir/internal/batch"
	"weir/internal/testkit/ziptest"
	"weir/internal/weir"
	"weir/internal/wire"
)

// runner implements the interfaces that batches.Function needs.
type runner struct {
	mu         sync.Mutex      // guards specs, bodies and released
	specs      []batch.Spec    // the specs that Accept got, if the body could be read
	bodies     []string        // the body of each batch in specs
	err        error           // the error that Accept, Get and List return
	refused    int             // the number of calls of Refused
	released   int             // the number of reservations that were released
	reserveErr error           // the error that Reserve returns
	state      wire.BatchState // the state of the batch that Cancel returns; "" = none
}

func (f *runner) Accept(_ context.Context, s batch.Spec, body io.Reader) (wire.Batch, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return wire.Batch{}, err
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.specs, f.bodies = append(f.specs, s), append(f.bodies, string(text))

	return wire.Batch{ID: "one", State: wire.BatchChecking}, f.err
}

func (f *runner) Get(_ context.Context, id string) (wire.Batch, error) {
	if id != "one" {
		return wire.Batch{}, &weir.Error{Kind: weir.NotFound}
	}
	return wire.Batch{ID: id}, f.err
}

func (f *runner) Cancel(_ context.Context, id string) (wire.Batch, error) {
	b, err := f.Get(context.Background(), id)
	b.State = f.state
	return b, err
}

func (f *runner) List(context.Context) ([]wire.Batch, error) {
	return []wire.Batch{{ID: "one"}}, f.err
}

func (f *runner) Reserve(context.Context, int64) (func(), error) {
	return f.countRelease, f.reserveErr
}

func (f *runner) countRelease() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released++
}

func (f *runner) Refused(error) { f.refused++ }

// sendRequest sends a request to a function without upstreams. The strings in header are names and
// values, alternately.
func (f *runner) sendRequest(method, address string, body io.Reader,
	header ...string) *httptest.ResponseRecorder {
	function := &batches.Function{Batches: f, Memory: f, Observer: f,
		Logger: slog.New(slog.DiscardHandler)}
	mux := http.NewServeMux()
	mux.Handle("POST /api/batches", function.Post())
	mux.Handle("GET /api/batches", function.List())
	mux.Handle("GET /api/batches/{id}", function.Get())
	mux.Handle("DELETE /api/batches/{id}", function.Cancel())
	r := httptest.NewRequest(method, address, body)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)

	return w
}

func TestPost(t *testing.T) {
	t.Parallel()
	f := &runner{}
	w := f.sendRequest("POST", "/api/batches?mode=valid&split=/a/b&split=//c&code=secret",
		strings.NewReader("<a/>"), "Content-Type", "text/xml", "Idempotency-Key", "k")
	want := batch.Spec{ContentType: "text/xml", Mode: wire.BatchValid,
		Split: []string{"/a/b", "//c"}, IdempotencyKey: "k"}
	if w.Code != http.StatusAccepted ||
		w.Header().Get("Location") != "http://example.com/api/batches/one" ||
		!reflect.DeepEqual(f.specs, []batch.Spec{want}) || f.bodies[0] != "<a/>" ||
		f.released != 1 {
		t.Errorf("got %d %v %+v %q, want 202 and %+v", w.Code, w.Header(), f.specs, f.bodies, want)
	}

	if f.sendRequest("POST", "/api/batches", strings.NewReader("<a/>")); f.specs[1].Mode !=
		wire.BatchAll {
		t.Errorf("a post without mode: got mode %q, want all", f.specs[1].Mode)
	}
}

func TestPost_Refuses(t *testing.T) {
	t.Parallel()
	broken := io.MultiReader(strings.NewReader("<a>"), brokenReader{})
	for name, c := range map[string]struct {
		query  string
		body   io.Reader
		header []string
		status int
	}{
		"UnknownMode":      {"?mode=some", nil, nil, 400},
		"EmptyMode":        {"?mode=", nil, nil, 400},
		"ModeTwice":        {"?mode=all&mode=all", nil, nil, 400},
		"UnknownParameter": {"?modes=all", nil, nil, 400},
		"DueTime":          {"?deliverAfter=1h", nil, nil, 400},
		"ManyPaths":        {"?" + strings.Repeat("split=/a&", 17), nil, nil, 400},
		"Header":           {"", nil, []string{"Weir-Deliver-After", "1h"}, 400},
		"KeyTwice": {"", nil,
			[]string{"Idempotency-Key", "a", "Idempotency-Key", "a"}, 400},
		"KeyWithSpace":    {"", nil, []string{"Idempotency-Key", "a b"}, 400},
		"MisspeltKey":     {"", nil, []string{"X-Idempotency-Key", "a"}, 400},
		"MisspeltDueTime": {"", nil, []string{"Deliver-At", "2030-01-31T08:00:00Z"}, 400},
		"GzipTwice":       {"", nil, []string{"Content-Encoding", "gzip, gzip"}, 415},
		"NoGzip": {"", strings.NewReader("<a/>"),
			[]string{"Content-Encoding", "gzip"}, 400},
		"CharsetAsCoding": {"", nil, []string{"Content-Encoding", "utf-8"}, 415},
		"BrokenOff":       {"", broken, nil, 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &runner{}
			w := f.sendRequest("POST", "/api/batches"+c.query, c.body, c.header...)
			if w.Code != c.status || len(f.specs) != 0 || f.refused != 1 {
				t.Errorf("got %d %s, %d accepted and %d refused, want %d, none accepted and 1 refused", w.Code, w.Body,
					len(f.specs), f.refused, c.status)
			}
		})
	}
}

// A packed document is unpacked while it is read, and bounded.
func TestPost_UnpacksGzip(t *testing.T) {
	t.Parallel()
	f := &runner{}
	w := f.sendRequest("POST", "/api/batches", bytes.NewReader(ziptest.Gzip("<a>text</a>")),
		"Content-Encoding", "gzip")
	if w.Code != http.StatusAccepted || len(f.bodies) != 1 || f.bodies[0] != "<a>text</a>" {
		t.Errorf("got %d %s and the bodies %q; want 202 and the unpacked one", w.Code, w.Body,
			f.bodies)
	}

	for name, c := range map[string]struct {
		body   []byte
		status int
		want   string
	}{
		"bomb": {ziptest.Bomb(), 413, "200 times"},
		"bomb within the ratio": {ziptest.Gzip(poorlyPacked(batch.MaxBytes + 1)), 413,
			"when it is unpacked"},
		"ends early": {ziptest.Gzip("<a>text</a>")[:20], 400, "ends early"},
	} {
		f := &runner{}
		w := f.sendRequest("POST", "/api/batches", bytes.NewReader(c.body), "Content-Encoding", "gzip")
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) || len(f.specs) != 0 {
			t.Errorf("%s: got %d %s and %d batches; want %d with %q and none", name, w.Code, w.Body,
				len(f.specs), c.status, c.want)
		}
	}
}

// poorlyPacked returns a text that gzip makes about 20 times smaller.
func poorlyPacked(size int) string {
	random, block := rand.New(rand.NewPCG(1, 2)), make([]byte, 64)
	var b strings.Builder
	for b.Len() < size {
		for i := range 3 {
			block[i*20] = byte(random.Uint32())
		}
		b.Write(block)
	}

	return b.String()
}

func TestPost_TooLarge(t *testing.T) {
	t.Parallel()
	f := &runner{}
	w := f.sendRequest("POST", "/api/batches",
		strings.NewReader(strings.Repeat("x", batch.MaxBytes+1)))
	if w.Code != http.StatusRequestEntityTooLarge || len(f.specs) != 0 {
		t.Errorf("got %d and %d accepted batches; want 413 and none", w.Code, len(f.specs))
	}
}

func TestPost_NoMemory(t *testing.T) {
	t.Parallel()
	f := &runner{reserveErr: &weir.Error{Kind: weir.Unavailable}}
	if w := f.sendRequest("POST", "/api/batches", strings.NewReader("<a/>")); w.Code != 503 ||
		len(f.specs) != 0 {
		t.Errorf("got %d and %d accepted batches; want 503 and none", w.Code, len(f.specs))
	}
}

// brokenReader is the body of a request whose connection breaks.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestGet(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]struct {
		status int
		text   string
	}{"/api/batches/one": {200, `"id":"one"`}, "/api/batches/two": {404, ""},
		"/api/batches": {200, `{"batches":[{"id":"one"`}} {
		if w := (&runner{}).sendRequest("GET", address, nil); w.Code != want.status ||
			!strings.Contains(w.Body.String(), want.text) {
			t.Errorf("%s: got %d %s, want %d %s", address, w.Code, w.Body, want.status, want.text)
		}
	}

	for _, address := range []string{"/api/batches/one", "/api/batches"} {
		if w := (&runner{err: &weir.Error{Kind: weir.Unavailable}}).sendRequest("GET", address, nil); w.Code != 503 {
			t.Errorf("%s without storage: got %d, want 503", address, w.Code)
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for state, want := range map[wire.BatchState]int{wire.BatchFiling: 202,
		wire.BatchCancelled: 200} {
		if w := (&runner{state: state}).sendRequest("DELETE", "/api/batches/one", nil); w.Code !=
			want ||
			!strings.Contains(w.Body.String(), string(state)) {
			t.Errorf("%s: got %d %s, want %d and the batch", state, w.Code, w.Body, want)
		}
	}

	if w := (&runner{}).sendRequest("DELETE", "/api/batches/two", nil); w.Code != 404 {
		t.Errorf("an unknown batch: got %d, want 404", w.Code)
	}
}

// slowBody is an empty body whose Read waits until the channel is closed.
type slowBody chan struct{}

func (b slowBody) Read([]byte) (int, error) { <-b; return 0, io.EOF }

// Post reads at most four uploads at a time, so that memory is left for posts of single messages.
// Post refuses a fifth upload after a wait.
func TestPost_FewUploadsAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &runner{}
		function := &batches.Function{Batches: f, Memory: &runner{}, Observer: &runner{},
			Logger: slog.New(slog.DiscardHandler)}
		post, body := function.Post(), make(slowBody)
		send := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			post.ServeHTTP(w, httptest.NewRequest("POST", "/api/batches", body))
			return w
		}

		var slow sync.WaitGroup
		for range 4 {
			slow.Go(func() { send() })
		}

		synctest.Wait()

		if w := send(); w.Code != http.StatusServiceUnavailable ||
			w.Header().Get("Retry-After") == "" {
			t.Errorf("the fifth upload: got %d, want 503 with Retry-After", w.Code)
		}

		close(body)
		slow.Wait()
		if w := send(); w.Code != http.StatusAccepted {
			t.Errorf("an upload afterwards: got %d %s, want 202", w.Code, w.Body)
		}
	})
}
