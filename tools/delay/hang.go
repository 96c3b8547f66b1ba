package delay

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// maxHangingBody is the largest body of a request that hangs, in bytes. Storage takes 4 MiB in a transaction. It
// takes 5,000 MiB in a blob, which no caller here sends at once.
const maxHangingBody = 64 << 20

// hangRule lets requests hang until it is released: those for which "match" returns true.
type hangRule struct {
	matches  func(*http.Request) bool
	released chan struct{} // closed by releaseAll
	release  sync.Once
}

func (h *hangRule) releaseAll() { h.release.Do(func() { close(h.released) }) }

// Hang makes requests hang from now on: those for which "match" returns true, or all if "match" is nil. The proxy
// accepts these requests and gives no answer until release is called. Then it passes on the requests whose clients
// still wait. A second call of Hang releases the requests of the first call. The function "match" may be called
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

// awaitRelease blocks a request that is to hang, until the request is released or its client has left. If the client
// has left, it returns an error. It reads the body first, because the server does not notice that a client has left
// until the whole body is read.
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

// Hanging returns how many requests hang now.
func (p *Proxy) Hanging() int { return int(p.hanging.Load()) }
