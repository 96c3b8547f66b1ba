package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// newSystemBehind starts everything behind a host of the mode given, with more flags of the host.
func newSystemBehind(t *testing.T, mode string, env []string, flags ...string) *system {
	t.Helper()
	s, hostPort := newBareSystem(t), freePort(t)
	s.weir, s.app = "http://127.0.0.1:"+hostPort, s.stage("level: info", "level: debug")
	s.start("funchost", slices.Concat(s.env(), env, []string{"FUNCTIONS_WORKER_RUNTIME=custom"}),
		append([]string{"--script-root", s.app, "--port", hostPort, "--http", mode, "--state-dir", t.TempDir()}, flags...)...)
	s.eventually("the system is ready", startLimit, func() bool { return s.status(s.weir+"/api/health") == http.StatusOK })
	return s
}

// TestClientsGone: clients go away before, within and behind their bodies. Nothing of it is a
// failure of Weir's, and each message that is sent again is written once.
func TestClientsGone(t *testing.T) {
	for _, mode := range []string{"forwarding", "proxying"} {
		t.Run(mode, func(t *testing.T) {
			s := newSystemBehind(t, mode, nil)
			const count = 120
			for i := range count {
				s.postAndGo(i)
			}
			var accepted []message
			for i := range count {
				m, err := s.try(fmt.Sprintf("/gone/%d", i), 1, fmt.Sprintf("gone-%d", i))
				if err != nil {
					t.Fatal(err)
				}
				accepted = append(accepted, m)
			}
			s.allFinal(accepted, "delivered", time.Minute)
			if st := s.stats(); st.Writes != count || st.Duplicates != 0 {
				t.Errorf("got %+v, want %d writes, none twice", st, count)
			}
			if log := s.logs.String(); strings.Contains(log, `"level":"ERROR"`) {
				t.Errorf("%d lines of level ERROR, want none", strings.Count(log, `"level":"ERROR"`))
			}
		})
	}
}

// postAndGo sends a message, or a part of it, and closes the connection without reading.
func (s *system) postAndGo(i int) {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.weir, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	body := fmt.Sprintf(`<article path="/gone/%d" version="1"><title>Version 1</title></article>`, i) // as s.try has it
	sent := []int{0, len(body) / 2, len(body)}[i%3]
	_, err = fmt.Fprintf(conn, "POST /api/messages HTTP/1.1\r\nHost: weir.example\r\nContent-Type: application/xml\r\nIdempotency-Key: gone-%d\r\nContent-Length: %d\r\n\r\n%s",
		i, len(body), body[:sent])
	if err != nil {
		s.t.Fatal(err)
	}
}

// TestChunked: a host that proxies streams an upload of unknown length. One that forwards answers 500
// by itself, and the handler is not asked.
func TestChunked(t *testing.T) {
	for mode, want := range map[string]int{"forwarding": http.StatusInternalServerError, "proxying": http.StatusAccepted} {
		t.Run(mode, func(t *testing.T) {
			s := newSystemBehind(t, mode, nil)
			body := io.MultiReader(strings.NewReader(article("/chunked", 1))) // of unknown length
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.weir+"/api/messages", body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/xml")
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != want {
				t.Errorf("got %d %s %v, want %d", resp.StatusCode, text, err, want)
			}
		})
	}
}

// TestLongWait: an answer that is held comes through both kinds of hosts.
func TestLongWait(t *testing.T) {
	for _, mode := range []string{"forwarding", "proxying"} {
		t.Run(mode, func(t *testing.T) {
			s := newSystemBehind(t, mode, nil)
			s.asks(200, "POST", "/api/pause", `{"all":true,"reason":"r"}`)
			answer, _ := s.asks(202, "POST", "/api/messages", titled("/wait", "T"), "Prefer", "wait=3")
			if !strings.Contains(answer, `"queued"`) {
				t.Errorf("got %s, want the receipt of a message that waits", answer)
			}
			s.asks(200, "POST", "/api/resume", `{"all":true}`)
			s.asks(200, "POST", "/api/messages", titled("/soon", "T"), "Prefer", "wait=30")
		})
	}
}
