package delay

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// maxHeld is how much of a hanging request's body is read. Storage takes 4 MiB in a transaction. It
// takes 5,000 MiB in a blob, which no caller here sends at once.
const maxHeld = 64 << 20

// requestHold holds requests up.
type requestHold struct {
	matches  func(*http.Request) bool
	released chan struct{}
	release  sync.Once
}

func (h *requestHold) releaseAll() { h.release.Do(func() { close(h.released) }) }

// Hang lets the requests for which match returns true (nil: all) hang from now on: the proxy accepts them and gives no
// answer until the caller calls release. Then the proxy passes on the requests whose callers still wait. A second call
// of Hang ends the first. match may be called concurrently.
func (p *Proxy) Hang(match func(*http.Request) bool) (release func()) {
	h := &requestHold{matches: match, released: make(chan struct{})}
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

// holdIfHanging blocks if the request is to hang, until its release or until its caller has left. It reads the body
// first, because the server notices that a caller has left only after the whole body.
func (p *Proxy) holdIfHanging(req *http.Request) error {
	h := p.hang.Load()
	if h == nil || !h.matches(req) {
		return nil
	}
	p.hanging.Add(1)
	defer p.hanging.Add(-1)
	if req.Body != nil {
		body, err := io.ReadAll(io.LimitReader(req.Body, maxHeld))
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
