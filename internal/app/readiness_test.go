package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/inflight"
)

// newClosedServer returns a server whose storage is not open yet.
func newClosedServer() *Server {
	return newServer(&App{log: slog.New(slog.DiscardHandler)}, time.Now())
}

// openWith opens storage for the server. h handles the requests to the functions.
func (s *Server) openWith(h http.Handler) {
	s.running.Store(&running{handler: h})
	close(s.opened)
}

// openAccepting opens storage for a server whose functions answer 202.
func (s *Server) openAccepting() {
	s.openWith(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
}

// sendRequest sends a POST. It returns the answer's status, the time until the answer, and the
// answer's Retry-After.
func (s *Server) sendRequest(ctx context.Context, path string) (status int, took time.Duration,
	retryAfter string) {
	w, began := httptest.NewRecorder(), time.Now()
	s.newHandler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, path, nil))
	return w.Code, time.Since(began), w.Header().Get("Retry-After")
}

func TestServer_Readiness(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path   string
		sentAt time.Duration // age of the process at the request
		opens  time.Duration // age of the process when storage opens; 0 = never
		gaveUp time.Duration // time from the request until the client gives up; 0 = never
		status int
		took   time.Duration // time from the request to the answer
		retry  string        // the answer's Retry-After
	}{
		"HostIsAnsweredOnceStorageOpens": {path: "/", opens: 3 * time.Second, status: 200,
			took: 3 * time.Second},
		"HostIsAnsweredAfterTenSeconds": {path: "/", status: 200, took: 10 * time.Second},
		"HostIsAnsweredAtOnceIfStorageOpen": {path: "/", opens: time.Second, sentAt: time.Hour,
			status: 200},
		"OldProcessAnswersHostAtOnce": {path: "/", sentAt: time.Hour, status: 200},
		"TheFirstRequestWaitsForStorage": {path: "/api/messages", opens: 9 * time.Second,
			status: 202, took: 9 * time.Second},
		"ARequestWaitsUntilTheProcessIs14sOld": {path: "/api/messages", sentAt: 10 * time.Second,
			status: 503, took: 4 * time.Second, retry: "4"},
		"StorageStaysAway": {path: "/api/messages", status: 503, took: 14 * time.Second,
			retry: "4"},
		"StorageIsLate": {path: "/api/messages", opens: 15 * time.Second, status: 503,
			took: 14 * time.Second, retry: "4"},
		"StorageIsAwayForLong": {path: "/api/messages", sentAt: time.Minute, status: 503,
			retry: "4"},
		"StorageIsOpen": {path: "/api/messages", opens: time.Second, sentAt: time.Minute,
			status: 202},
		"TheCallerGivesUp": {path: "/api/messages", gaveUp: 2 * time.Second, status: 503,
			took: 2 * time.Second, retry: "4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newClosedServer()
				if c.opens > 0 {
					time.AfterFunc(c.opens, s.openAccepting)
				}

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.Sleep(c.sentAt)
				if c.gaveUp > 0 {
					time.AfterFunc(c.gaveUp, cancel)
				}

				status, took, retry := s.sendRequest(ctx, c.path)
				if status != c.status || took != c.took || retry != c.retry {
					t.Errorf("got status %d after %s with Retry-After %q, want %d after %s with %q",
						status, took, retry,
						c.status, c.took, c.retry)
				}

				time.Sleep(c.opens)
			})
		})
	}
}

// The handler answers 404 in two cases: host and handler could understand the path differently, or
// a client other than the host calls the address of a trigger.
func TestServer_ServesPlainPathsAndHostCallsOnly(t *testing.T) {
	t.Parallel()
	s := newClosedServer()
	r := newTestRunning(t)
	if err := r.store.EnsureControlRows(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}

	s.openWith(r.handler)
	server := httptest.NewServer(s.newHandler())
	t.Cleanup(server.Close)
	const call = `{"Data":{"ticket":"\"nothing of ours\"","timer":{"IsPastDue":false}},"Metadata":{}}`
	for name, c := range map[string]struct {
		method, path string
		// the header Host; "" = the handler's address, as in the host's own calls
		host   string
		status int
	}{
		"AnAddress":  {"GET", "/api/openapi.yaml", "weir.example", 200},
		"WithASlash": {"GET", "/api/openapi.yaml/", "weir.example", 200},
		"InCapitals": {"GET", "/API/openapi.yaml", "weir.example", 404},
		"AnEscape":   {"GET", "/api/%6fpenapi.yaml", "weir.example", 404},
		"ABackslash": {"GET", "/api/messages%5C..%5Copenapi.yaml", "weir.example", 404},
		"Dots":       {"GET", "/api/messages/../openapi.yaml", "weir.example", 404},
		"TwoSlashes": {"GET", "/api//openapi.yaml", "weir.example", 404},
		// The health checks fail without a storage account.
		"AProbe":            {"HEAD", "/api/health", "weir.example", 503},
		"SweepOfTheHost":    {"POST", "/sweep", "", 200},
		"SweepOfAClient":    {"POST", "/sweep", "weir.example", 404},
		"ProcessOfTheHost":  {"POST", "/process", "", 200},
		"ProcessOfAClient":  {"POST", "/process", "weir.example", 404},
		"PoisonOfTheHost":   {"POST", "/poison", "", 200},
		"PoisonOfAClient":   {"POST", "/poison", "weir.example", 404},
		"InboxOfTheHost":    {"POST", "/inbox", "", 200},
		"InboxOfAClient":    {"POST", "/inbox", "weir.example", 404},
		"ProcessByAnEscape": {"POST", "/%70rocess", "", 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+c.path,
				strings.NewReader(call))
			if err != nil {
				t.Fatal(err)
			}

			r.Host = c.host
			resp, err := server.Client().Transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()

			if resp.StatusCode != c.status {
				body, _ := io.ReadAll(resp.Body)
				t.Errorf("%s %s for %q: got %d %s, want %d", c.method, c.path, c.host,
					resp.StatusCode, body, c.status)
			}
		})
	}
}

// closeTogether calls all closers at once, so that a closer that hangs does not take the time of
// the other closers.
func TestCloseTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		limited, cancel := context.WithTimeout(t.Context(), stopTimeout)
		defer cancel()
		bad := errors.New("bad")
		var begun []time.Duration
		hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		err := closeTogether(limited, hangs, func(context.Context) error {
			begun = append(begun, time.Since(began))
			return bad
		})
		if !errors.Is(err, bad) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the errors of both closers", err)
		}

		if len(begun) != 1 || begun[0] != 0 {
			t.Errorf("the second closer was called after %v, want one call after 0s", begun)
		}
	})
}

// A request that waits until storage is open is not the cause if the process dies meanwhile.
func TestServer_MarksNoRequestThatWaitsForStorage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newClosedServer()
		open := func() (*os.File, error) { return inflight.OpenFolderFile(dir) }
		defer s.openCrashGuard(open)()
		if s.crashGuard == nil {
			t.Fatal("got no guard")
		}

		answered := make(chan int, 1)
		go func() {
			status, _, _ := s.sendRequest(t.Context(), "/api/replays/1")
			answered <- status
		}()

		synctest.Wait()
		marks, err := os.ReadFile(filepath.Join(dir, "weir.requests"))
		if err != nil || len(marks) > 0 {
			t.Errorf("got the marks %q, %v, want none", marks, err)
		}

		s.openAccepting()
		if got := <-answered; got != http.StatusAccepted {
			t.Errorf("got %d, want 202", got)
		}
	})
}
