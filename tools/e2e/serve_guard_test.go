package e2e_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runningMark matches the mark of a request that runs: its key, its deaths, and 1.
var runningMark = regexp.MustCompile(`(?m)^[0-9a-f]{32} \d+ 1 `)

// hangIn sends a GET whose answer is larger than all buffers, and reads none of it. It returns when
// the process has marked the request.
func (p *serveProcess) hangIn(data, path string) {
	p.s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.address, "http://"))
	if err != nil {
		p.s.t.Fatal(err)
	}

	p.s.t.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		p.s.t.Fatal(err)
	}

	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
		p.s.t.Fatal(err)
	}

	p.s.awaitCondition("the request runs", time.Minute, func() bool {
		marks, err := os.ReadFile(filepath.Join(data, "weir.requests"))
		return err == nil && runningMark.Match(marks)
	})
}

// A request ends the process each time, and its client repeats it. The process refuses it after two
// deaths, and answers all others. A request that a stop cut off is not the cause.
func TestServe_RefusesARequestThatKills(t *testing.T) {
	s, config, data := newServeSystem(t, "maxBody: 1MiB", "maxBody: 32MiB")
	p := s.startServe(config, "--data", data)
	var bodies []string
	for i := range 2 {
		article := fmt.Sprintf(`<article path="/large/%d" version="1"><title>T</title><text>%s</text></article>`,
			i, strings.Repeat("x", 24<<20))
		status, answer := p.send(plainClient, http.MethodPost, "/api/messages", article,
			"Content-Type", "application/xml", "Weir-Deliver-After", "1h")
		if status != http.StatusAccepted {
			t.Fatalf("got %d %s, want 202", status, answer)
		}

		var m postedMessage
		if err := json.Unmarshal(answer, &m); err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, "/api/messages/"+m.ID+"/body")
	}

	for _, step := range []struct {
		path   string
		signal syscall.Signal
	}{{bodies[0], syscall.SIGKILL}, {bodies[0], syscall.SIGKILL}, {bodies[1], syscall.SIGTERM},
		{bodies[1], syscall.SIGKILL}} {
		p.hangIn(data, step.path)
		p.stop(step.signal)
		p = s.startServe(config, "--data", data)
	}

	for i, want := range []int{http.StatusInternalServerError, http.StatusOK} {
		if got, _ := p.send(plainClient, http.MethodGet, bodies[i], ""); got != want {
			t.Errorf("body %d: got %d, want %d", i, got, want)
		}
	}

	if !strings.Contains(p.log(), "the process ended twice while this request ran") {
		t.Errorf("the log does not name the reason of the refusal:\n%s", p.log())
	}

	p.awaitStage(p.mustPost("/a", 1), "delivered")
}
