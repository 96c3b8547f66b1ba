package e2e_test

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/tools/funchost/host"
)

// modeEnv names the environment variable with the host's mode for tests that do not use inEachMode.
// If the variable is not set, the host proxies requests.
const modeEnv = "E2E_HTTP"

// inEachMode runs a test under a host that forwards requests and under a host that proxies them
// (see host.Mode). Most tests of delivery run in one mode, because delivery does not depend on the
// mode.
func inEachMode(t *testing.T, test func(*testing.T)) {
	t.Parallel() // so that the subtests run in parallel with all other tests
	for _, mode := range []host.Mode{host.Forwarding, host.Proxying} {
		t.Run(string(mode), test)
	}
}

func modeOf(t *testing.T) host.Mode {
	t.Helper()
	switch mode := host.Mode(path.Base(t.Name())); mode {
	case host.Forwarding, host.Proxying: // a subtest of inEachMode
		return mode
	}

	var mode host.Mode
	if err := mode.Set(cmp.Or(os.Getenv(modeEnv), string(host.Proxying))); err != nil {
		t.Fatalf("take the mode of %s: %v", modeEnv, err)
	}

	return mode
}

// A client polls with an ETag over one connection. A forwarding host would close the connection
// after a 304, so Weir answers 200 under such a host.
func TestHTTP_PollingKeepsTheConnection(t *testing.T) {
	inEachMode(t, testPollingKeepsTheConnection)
}

func testPollingKeepsTheConnection(t *testing.T) {
	s := newSystem(t, 1)
	_, headers := s.requestStatus(200, "GET", "/api/openapi.yaml", "")
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	dials := 0
	ctx := httptrace.WithClientTrace(t.Context(),
		&httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
			if !c.Reused {
				dials++
			}
		}})

	for range 5 {
		req, err := http.NewRequestWithContext(ctx, "GET", s.weir+"/api/openapi.yaml", nil)
		if err != nil {
			t.Fatal(err)
		}

		req.Header.Set("If-None-Match", headers.Get("ETag"))
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}

		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != s.unchangedStatus() {
			t.Errorf("answered %d; want %d", resp.StatusCode, s.unchangedStatus())
		}
	}

	if dials != 1 {
		t.Errorf("%d connections for 5 requests; want 1", dials)
	}
}

// A proxying host accepts a body of unknown length. A forwarding host refuses such a body, and does
// not call the handler.
func TestHTTP_ChunkedUpload(t *testing.T) { inEachMode(t, testChunkedUpload) }

func testChunkedUpload(t *testing.T) {
	s := newSystem(t, 1)

	// net/http does not know its length
	body := io.MultiReader(strings.NewReader(titledArticle("/chunked", "T")))
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.weir+"/api/messages", body)
	if err != nil {
		t.Fatal(err)
	}

	req.Header.Set("Content-Type", "application/xml")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	want := http.StatusInternalServerError
	if s.mode == host.Proxying {
		want = http.StatusAccepted
	}

	if err != nil || resp.StatusCode != want || s.mode == host.Forwarding && len(text) != 0 {
		t.Fatalf("answered %d %q, %v; want %d, and nothing more if the host forwards",
			resp.StatusCode, text, err, want)
	}

	if s.mode == host.Proxying {
		s.awaitStage(path.Base(resp.Header.Get("Location")), "delivered")
	}
}

// In each mode, a client that asks Weir to wait for the delivery (Prefer: wait) gets an answer
// after the wait.
func TestHTTP_LongWait(t *testing.T) { inEachMode(t, testLongWait) }

func testLongWait(t *testing.T) {
	s := newSystem(t, 1)
	s.requestStatus(200, "POST", "/api/pause", `{"all":true,"reason":"r"}`)
	answer, _ := s.requestStatus(202, "POST", "/api/messages", titledArticle("/wait", "T"),
		"Prefer", "wait=3")
	if !strings.Contains(answer, `"queued"`) {
		t.Errorf("answered %s; want the receipt of a message that waits", answer)
	}

	s.requestStatus(200, "POST", "/api/resume", `{"all":true}`)
	s.requestStatus(200, "POST", "/api/messages", titledArticle("/soon", "T"), "Prefer", "wait=30")
}

// Clients disconnect during a post: at a random time, or after none, half or all of the body. Then
// they repeat the post with the same Idempotency-Key. Weir accepts and delivers each message once,
// and logs no ERROR.
func TestHTTP_ClientsThatLeave(t *testing.T) { inEachMode(t, testClientsThatLeave) }

func testClientsThatLeave(t *testing.T) {
	const paths, versions = 8, 15
	s := newSystem(t, 1)
	accepted := make([][]postedMessage, paths)
	var clients sync.WaitGroup
	for n := range paths {
		clients.Go(func() {
			for v := 1; v <= versions; v++ {
				at := fmt.Sprintf("/left/%d", n)
				if v%3 == 0 {
					s.postAndBreakOff(at, v, n%3)
				} else {
					s.postAndLeave(at, v, time.Duration(rand.Int64N(int64(30*time.Millisecond))))
				}

				m, err := s.postUntilAccepted(t.Context(), at, v)
				if err != nil {
					t.Error(err)
					return
				}

				accepted[n] = append(accepted[n], m)
			}
		})
	}

	clients.Wait()
	for _, messages := range accepted {
		s.awaitStages(messages, "delivered", time.Minute)
	}

	if st := s.checkRecord(); st.Writes != paths*versions || st.Repeats != 0 {
		t.Errorf("%+v; want %d writes, none of them a repeat", st, paths*versions)
	}

	if out := s.output.String(); strings.Contains(out, `"level":"ERROR"`) {
		t.Error("the log has errors, want none of clients that went away")
	}
}

// postAndLeave posts a message, and disconnects if there is no answer after the given time.
func (s *system) postAndLeave(at string, version int, after time.Duration) {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true},
		Timeout: max(after, time.Millisecond)}
	body := strings.NewReader(versionedArticle(at, version))
	req, err := http.NewRequestWithContext(s.t.Context(), "POST", s.weir+"/api/messages", body)
	if err != nil {
		s.t.Error(err)
		return
	}

	req.Header.Set("Content-Type", "application/xml")
	req.Header.Set("Idempotency-Key", keyOf(at, version))
	if resp, err := client.Do(req); err == nil {
		resp.Body.Close()
	}
}

// postAndBreakOff sends the headers of a post and 0, 1 or 2 halves of its body. Then it closes the
// connection without reading an answer.
func (s *system) postAndBreakOff(at string, version, halves int) {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.weir, "http://"))
	if err != nil {
		s.t.Error(err)
		return
	}
	defer conn.Close()
	body := versionedArticle(at, version)
	head := "POST /api/messages HTTP/1.1\r\nHost: weir.example\r\nContent-Type: application/xml\r\n"
	_, err = fmt.Fprintf(conn, "%sIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s",
		head, keyOf(at, version), len(body), body[:len(body)*halves/2])
	if err != nil {
		s.t.Error(err)
	}
}
