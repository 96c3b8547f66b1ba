package delay

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// maxHangingBody is the largest body of a request that hangs, in bytes. Storage takes at most 4 MiB
// in a transaction. A blob can be larger, but callers of this package put no blob above
// maxHangingBody.
const maxHangingBody = 64 << 20

// hangRule makes a request or its answer hang if "matches" returns true for the request.
type hangRule struct {
	matches  func(*http.Request) bool
	isAnswer bool          // storage has executed the request before it hangs
	released chan struct{} // closed by releaseAll
	release  sync.Once
}

func (h *hangRule) releaseAll() { h.release.Do(func() { close(h.released) }) }

// Hang makes each later request hang if "match" returns true for the request. If "match" is nil,
// all later requests hang. The proxy does not answer these requests until release is called. Then
// the proxy passes on each request whose client still waits.
//
// A second call of Hang releases the requests of the first call, and replaces its "match". The
// proxy calls "match" concurrently.
func (p *Proxy) Hang(match func(*http.Request) bool) (release func()) {
	return p.setRule(&hangRule{matches: match, released: make(chan struct{})})
}

// HangAnswers makes the answer of each later change hang if its path or its body contains the text.
// Storage executes the change at once. Otherwise HangAnswers is like Hang.
func (p *Proxy) HangAnswers(text string) (release func()) {
	matches := func(r *http.Request) bool {
		if r.Method == http.MethodGet {
			return false
		}
		body, err := readBody(r)
		return err == nil && (strings.Contains(r.URL.Path, text) ||
			bytes.Contains(body, []byte(text)))
	}

	return p.setRule(&hangRule{matches: matches, isAnswer: true, released: make(chan struct{})})
}

func (p *Proxy) setRule(h *hangRule) (release func()) {
	if h.matches == nil {
		h.matches = func(*http.Request) bool { return true }
	}

	if before := p.hang.Swap(h); before != nil {
		before.releaseAll()
	}

	return func() {
		p.hang.CompareAndSwap(h, nil)
		h.releaseAll()
	}
}

// hangingRule returns the rule that makes a request or its answer hang, or nil.
func (p *Proxy) hangingRule(req *http.Request) *hangRule {
	if h := p.hang.Load(); h != nil && h.matches(req) {
		return h
	}
	return nil
}

// awaitRelease waits until the rule ends. If the client leaves earlier, awaitRelease returns an
// error. The body must be read before, because Go's HTTP server does not notice that the client has
// left until the body is read.
func (p *Proxy) awaitRelease(req *http.Request, h *hangRule) error {
	p.hanging.Add(1)
	defer p.hanging.Add(-1)

	select {
	case <-h.released:
		return nil
	case <-req.Context().Done():
		return req.Context().Err()
	}
}

// readBody reads the whole body of a request, and lets the next reader read it again.
func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}

	body, err := io.ReadAll(io.LimitReader(req.Body, maxHangingBody))
	if err != nil {
		return nil, fmt.Errorf("read the body of a request that hangs: %w", err)
	}

	req.Body = io.NopCloser(bytes.NewReader(body))

	return body, nil
}

// Hanging returns the number of requests that hang now.
func (p *Proxy) Hanging() int { return int(p.hanging.Load()) }
