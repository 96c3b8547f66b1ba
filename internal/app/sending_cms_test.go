//go:build !race || long

package app

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// rawCMS is a CMS that records the bytes of requests, and answers with given bytes. It answers a
// request for /token with a token for a sign-in.
type rawCMS struct {
	address string

	mu       sync.Mutex
	answer   string
	cancel   func()
	requests []string
	written  string
}

func startRawCMS(t *testing.T) *rawCMS {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	s := &rawCMS{address: listener.Addr().String()}
	var connections sync.WaitGroup
	t.Cleanup(connections.Wait)
	t.Cleanup(func() { listener.Close() })
	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(t.Context(), func() { conn.Close() })
			connections.Go(func() { s.serve(conn) })
		}
	})

	return s
}

func (s *rawCMS) setAnswer(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.cancel = text, nil
}

// onRequest sets a function that is called after the beginning of the answer to a request.
func (s *rawCMS) onRequest(cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
}

// serve answers the requests of a connection.
func (s *rawCMS) serve(conn net.Conn) {
	defer conn.Close()
	var raw bytes.Buffer
	in := bufio.NewReader(io.TeeReader(conn, &raw))
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}

		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}

		text := raw.String() // the client sends the next request after the answer
		raw.Reset()
		if !s.answerRequest(conn, req, text) {
			return
		}
	}
}

// answerRequest reports whether the connection stays open.
func (s *rawCMS) answerRequest(conn net.Conn, req *http.Request, text string) bool {
	s.mu.Lock()
	s.requests = append(s.requests, text)
	answer, cancel := s.answer, s.cancel
	number := len(s.requests)
	s.mu.Unlock()

	if req.URL.Path == "/token" || req.URL.Path == "/content/token" {
		_, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nX-Token: token-of-cms-%d\r\n"+
			"Content-Length: 0\r\n\r\n", number)
		return err == nil
	}

	answer = strings.ReplaceAll(answer, "ECHO", text)
	_, body, _ := strings.Cut(answer, "\r\n\r\n")
	answer = strings.Replace(answer, "LENGTH", strconv.Itoa(len(body)), 1)
	answer, closes := strings.CutSuffix(answer, "CLOSE")
	answer, waits := strings.CutSuffix(answer, "WAIT")
	if _, err := io.WriteString(conn, answer); err != nil || closes {
		return false
	}

	if waits {
		cancel()
		_, _ = io.Copy(io.Discard, conn) // until the client closes the connection
	}

	return !waits
}

// writeNewRequests writes the requests of the last attempt, unless the attempt before it sent the
// same ones.
func (s *rawCMS) writeNewRequests(out *strings.Builder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text strings.Builder
	for _, request := range s.requests {
		fmt.Fprintf(&text, "> %s\n", shortenRuns(s.hidePort(strconv.Quote(request))))
	}

	s.requests = nil
	if text.String() != s.written {
		out.WriteString(cmp.Or(text.String(), "> none\n"))
		s.written = text.String()
	}
}

func (s *rawCMS) forgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// hidePort replaces the server's address, which differs in each run.
func (s *rawCMS) hidePort(text string) string { return strings.ReplaceAll(text, s.address, "CMS") }
