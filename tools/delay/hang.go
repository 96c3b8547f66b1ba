package delay

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// maxHangingBody is the largest body of a request that hangs, in bytes. Storage takes at most 4 MiB in a transaction. A
// blob can be larger, but callers of this package put no blob above maxHangingBody.
const maxHangingBody = 64 << 20

// hangRule makes a request hang if "matches" returns true for the request.
type hangRule struct {
	matches  func(*http.Request) bool
	released chan struct{} // closed by releaseAll
	release  sync.Once
}

func (h *hangRule) releaseAll() { h.release.Do(func() { close(h.released) }) }

// Hang makes each later request hang if "match" returns true for the request. If "match" is nil, all later requests
// hang. The proxy does not answer these requests until release is called. Then the proxy passes on each request whose
// client still waits.
//
// A second call of Hang releases the requests of the first call, and replaces its "match". The proxy calls "match"
// concurrently.
func (p *Proxy) Hang(match func(*http.Request) bool) (release func()) {
	h := &hangRule{matches: match, released: make(chan struct{})}
	if match == nil {
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

// awaitRelease returns at once if the request is not to hang. Else it waits until the request is released. If the
// client leaves earlier, awaitRelease returns an error. Before it waits, it reads the whole body, because Go's HTTP
// server does not notice that the client has left until the body is read.
func (p *Proxy) awaitRelease(req *http.Request) error {
	h := p.hang.Load()
	if h == nil || !h.matches(req) {
		return nil
	}
	p.hanging.Add(1)
	defer p.hanging.Add(-1)
	if req.Body != nil {
		body, err := io.ReadAll(io.LimitReader(req.Body, maxHangingBody))
		if err != nil {
			return fmt.Errorf("read the body of a request that hangs: %w", err)
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	select {
	case <-h.released:
		return nil
	case <-req.Context().Done():
		return req.Context().Err()
	}
}

// Hanging returns the number of requests that hang now.
func (p *Proxy) Hanging() int { return int(p.hanging.Load()) }
