package inflight_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/inflight"
)

// handler stands for a host's handler processes: each process has the file of the one before.
type handler struct {
	t       *testing.T
	path    string
	serve   http.HandlerFunc
	guard   *inflight.Guard
	guarded http.Handler
}

func newHandler(t *testing.T, serve http.HandlerFunc) *handler {
	t.Helper()
	h := &handler{t: t, path: filepath.Join(t.TempDir(), "marks"), serve: serve}
	if err := os.WriteFile(h.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	h.start()
	return h
}

// start makes a process on the file as it is now, whose last mark is new.
func (h *handler) start() { h.t.Helper(); h.startAfter(0) }

// startAfter makes a process on the file as it is now, whose last mark has an age. What an earlier
// process still runs has no effect on the new one, because its goroutines write to a copy of the
// file that is unlinked.
func (h *handler) startAfter(age time.Duration) {
	h.t.Helper()
	data, err := os.ReadFile(h.path)
	if err == nil {
		err = errors.Join(os.Remove(h.path), os.WriteFile(h.path, data, 0o600))
	}

	var file *os.File
	if err == nil {
		file, err = os.OpenFile(h.path, os.O_RDWR, 0)
	}

	if err != nil {
		h.t.Fatal(err)
	}

	h.t.Cleanup(func() { file.Close() })
	h.guard, err = inflight.NewGuard(file, time.Now().Add(-age), time.Now,
		slog.New(slog.DiscardHandler))
	if err != nil {
		h.t.Fatal(err)
	}

	h.guarded = h.guard.Handler(h.serve)
}

func (h *handler) call(method, target, body string) int {
	w := httptest.NewRecorder()
	h.guarded.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	return w.Code
}

// die starts the requests, and then a new process while they run.
func (h *handler) die(method string, targets ...string) {
	h.t.Helper()
	for _, target := range targets {
		go h.call(method, target, "")
	}
	synctest.Wait() // each request runs, or waits for its turn
	h.start()
}

// hanging serves requests below /hang until the test ends, and counts all requests that run.
func hanging(t *testing.T, runs *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		if strings.HasPrefix(r.URL.Path, "/hang") {
			<-t.Context().Done()
		}
	}
}

func inBubble(t *testing.T, test func(t *testing.T, h *handler, runs *atomic.Int64)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		test(t, newHandler(t, hanging(t, &runs)), &runs)
	})
}

func TestGuard_RefusesARequestAfterTwoDeaths(t *testing.T) {
	inBubble(t, func(t *testing.T, h *handler, runs *atomic.Int64) {
		h.die("GET", "/hang?a=1")
		h.die("GET", "/hang?a=1")

		if got := h.call("GET", "/hang?a=1", ""); got != http.StatusInternalServerError ||
			runs.Load() != 2 {
			t.Errorf("got %d after %d runs, want 500 after 2 runs", got, runs.Load())
		}

		for _, other := range []string{"GET /other?a=1", "GET /other", "POST /other?a=1"} {
			method, target, _ := strings.Cut(other, " ")
			if got := h.call(method, target, ""); got != http.StatusOK {
				t.Errorf("%s: got %d, want 200", other, got)
			}
		}

		h.start() // the refusal outlasts a restart
		if got := h.call("GET", "/hang?a=1", ""); got != http.StatusInternalServerError {
			t.Errorf("got %d after a restart, want 500", got)
		}

		time.Sleep(30*time.Minute + time.Second) // virtual time
		h.die("GET", "/hang?a=1")
		if runs.Load() != 6 {
			t.Errorf("got %d runs after half an hour, want 6: the request runs again", runs.Load())
		}
	})
}

// After the first death three requests are suspects. They run one after the other, so the next
// death condemns one.
func TestGuard_FindsTheCauseAmongManyRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, h *handler, runs *atomic.Int64) {
		h.die("GET", "/hang/a", "/hang/b", "/hang/c")
		h.die("GET", "/hang/a", "/hang/b", "/hang/c")
		if runs.Load() != 4 {
			t.Errorf("got %d runs in two processes, want 3 and 1", runs.Load())
		}

		refused := 0
		for _, target := range []string{"/hang/a", "/hang/b", "/hang/c"} {
			before := runs.Load()
			go func() { h.call("GET", target, "") }()
			synctest.Wait()
			if runs.Load() == before {
				refused++
			}

			h.start()
		}

		if refused != 1 {
			t.Errorf("got %d requests that did not run, want 1", refused)
		}
	})
}

func TestGuard_ASuspectWaitsForItsTurnNoLongerThanItsPatience(t *testing.T) {
	inBubble(t, func(t *testing.T, h *handler, _ *atomic.Int64) {
		h.die("GET", "/hang/a", "/hang/b")
		go h.call("GET", "/hang/a", "")
		synctest.Wait()
		began := time.Now()
		got, took := h.call("GET", "/hang/b", ""), time.Since(began)
		if got != http.StatusServiceUnavailable || took != 20*time.Second {
			t.Errorf("got %d after %s, want 503 after 20s", got, took)
		}

		if got := h.call("GET", "/free", ""); got != http.StatusOK {
			t.Errorf("got %d for a request without a death, want 200 at once", got)
		}
	})
}

// A request that ends has not killed the process, so only deaths in a row count.
func TestGuard_ForgetsTheDeathsOfARequestThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		h := newHandler(t, func(http.ResponseWriter, *http.Request) {
			if hangs.Load() {
				<-t.Context().Done()
			}
		})

		for range 5 {
			hangs.Store(true)
			h.die("POST", "/x")
			hangs.Store(false)
			if got := h.call("POST", "/x", ""); got != http.StatusOK {
				t.Fatalf("got %d, want 200", got)
			}
		}
	})
}

// A request that a stop cuts off is not the cause of the end. One that an earlier process died
// under keeps this death.
func TestGuard_CountsNoDeathAtAnOrderlyEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, h *handler, runs *atomic.Int64) {
		h.die("GET", "/hang/a")
		for range 3 {
			for _, target := range []string{"/hang/a", "/hang/b"} {
				go h.call("GET", target, "")
			}
			synctest.Wait()
			h.guard.Stop()
			go h.call("GET", "/hang/c", "") // begins during the stop
			synctest.Wait()
			h.guard.Stop()
			h.start()
		}

		if runs.Load() != 10 {
			t.Errorf("got %d runs in four processes, want 1 and three times 3", runs.Load())
		}

		h.die("GET", "/hang/b", "/hang/c")
		h.die("GET", "/hang/a")
		if got := h.call("GET", "/hang/a", ""); got != http.StatusInternalServerError {
			t.Errorf("got %d after a second death, want 500", got)
		}
	})
}

// The marks of a process that died long ago are no new deaths.
func TestGuard_CountsADeathFromTheLastMark(t *testing.T) {
	inBubble(t, func(t *testing.T, h *handler, _ *atomic.Int64) {
		for _, c := range []struct {
			age, passes time.Duration
			want        int
		}{
			{0, 0, http.StatusInternalServerError},
			{29 * time.Minute, 0, http.StatusInternalServerError},
			{29 * time.Minute, 2 * time.Minute, http.StatusOK},
			{31 * time.Minute, 0, http.StatusOK},
			{-time.Hour, 0, http.StatusInternalServerError}, // the clock was set back
			{-time.Hour, 31 * time.Minute, http.StatusOK},
		} {
			h.die("GET", "/hang")
			go h.call("GET", "/hang", "")
			synctest.Wait()
			h.startAfter(c.age)
			time.Sleep(c.passes)

			got := http.StatusOK
			go func() { got = h.call("GET", "/hang", "") }()
			synctest.Wait()
			if got != c.want {
				t.Errorf("last mark %s old, %s later: got %d, want %d", c.age, c.passes, got, c.want)
			}

			h.start()
			time.Sleep(time.Hour)
			h.start()
		}
	})
}

func TestGuard_PassesOnRequestsWithABody(t *testing.T) {
	inBubble(t, func(t *testing.T, h *handler, runs *atomic.Int64) {
		for range 4 {
			go h.call("POST", "/hang", "body")
			synctest.Wait()
			h.start()
		}

		if runs.Load() != 4 {
			t.Errorf("got %d runs of a request with a body, want 4", runs.Load())
		}
	})
}

// More requests than rows run: those without a row have no mark.
func TestGuard_ManyRequestsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, h *handler, runs *atomic.Int64) {
		targets := make([]string, 1100)
		for i := range targets {
			targets[i] = "/hang/" + strings.Repeat("x", i)
		}

		h.die("GET", targets...)
		if runs.Load() != 1100 {
			t.Errorf("got %d runs, want 1100", runs.Load())
		}

		if info, err := os.Stat(h.path); err != nil || info.Size() != 64<<10 {
			t.Errorf("got a file of %d bytes, %v, want 64 KiB", info.Size(), err)
		}
	})
}

// brokenFile fails, or has something else than marks.
type brokenFile struct {
	content string
	err     error
}

func (f brokenFile) ReadAt(p []byte, off int64) (int, error) {
	return strings.NewReader(f.content).ReadAt(p, off)
}
func (f brokenFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), f.err }

func TestGuard_FullDiskAndForeignContent(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	full := &brokenFile{}
	guard, err := inflight.NewGuard(full, time.Now(), time.Now,
		slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}

	full.err = io.ErrShortWrite
	h := guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != http.StatusOK {
			t.Errorf("got %d with a full disk, want 200", w.Code)
		}
	}

	if strings.Count(log.String(), "without marks") != 1 {
		t.Errorf("got the log %q, want one line", log.String())
	}

	for _, content := range []string{strings.Repeat("x", 200),
		strings.Repeat("a b c d\n", 40), "\x00",
		strings.Repeat("0123456789abcdef", 2) + " -1 1 99999999999999999999        \n"} {
		foreign := &brokenFile{content: content}
		if _, err := inflight.NewGuard(foreign, time.Now(), time.Now,
			slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("%.20q: got %v, want no error", content, err)
		}
	}
}

// failingFile fails a number of writes.
type failingFile struct {
	*os.File
	failures int
}

func (f *failingFile) WriteAt(p []byte, off int64) (int, error) {
	if f.failures--; f.failures >= 0 {
		return 0, io.ErrShortWrite
	}
	return f.File.WriteAt(p, off)
}

// The mark of a request that has ended must not stay: it would count as a death.
func TestGuard_RemovesAMarkAgainThatItCouldNotRemove(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "marks")
	open, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()

	file := &failingFile{File: open}
	quiet := slog.New(slog.DiscardHandler)
	guard, err := inflight.NewGuard(file, time.Now(), time.Now, quiet)
	if err != nil {
		t.Fatal(err)
	}

	h := guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fails" {
			file.failures = 1
		}
	}))
	for _, path := range []string{"/fails", "/other"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}

	got, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(got)) != "" {
		t.Errorf("got the marks %q, %v, want none", got, err)
	}
}

func TestOpenFolderFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, want := range []string{"", "mark"} { // the second time it finds the first one's content
		file, err := inflight.OpenFolderFile(dir)
		if err != nil {
			t.Fatal(err)
		}

		got, err := io.ReadAll(file)
		if err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}

		if _, err := file.WriteString("mark"); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
}

func TestOpenFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stale := filepath.Join(dir, "weir-requests-1-2")
	for _, path := range []string{stale, filepath.Join(dir, "other")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-25*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}

	for _, want := range []string{"", "mark"} { // the second time it finds the first one's content
		file, err := inflight.OpenFile(dir, 7, "80", time.Now())
		if err != nil {
			t.Fatal(err)
		}

		got, err := io.ReadAll(file)
		if err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}

		if _, err := file.WriteString("mark"); err != nil {
			t.Fatal(err)
		}

		file.Close()
	}

	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the stale file: got %v, want it gone", err)
	}

	if _, err := os.Stat(filepath.Join(dir, "other")); err != nil {
		t.Errorf("another file: got %v, want it there", err)
	}

	if err := os.Symlink(filepath.Join(dir, "other"), filepath.Join(dir, "weir-requests-7-81")); err != nil {
		t.Fatal(err)
	}

	if file, err := inflight.OpenFile(dir, 7, "81", time.Now()); err == nil {
		file.Close()
		t.Error("got a file by a link, want an error")
	}
}

func BenchmarkGuard(b *testing.B) {
	file, err := inflight.OpenFile(b.TempDir(), 1, "1", time.Now())
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	guard, err := inflight.NewGuard(file, time.Now(), time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}

	h := guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r, w := httptest.NewRequest("GET", "/api/messages/AQABL714SFvJDd7dAA", nil),
		httptest.NewRecorder()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}
