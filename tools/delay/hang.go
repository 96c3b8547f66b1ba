package delay

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// maxHeld bounds what is read of a hanging request's body; storage takes 4 MiB in a
// transaction, and 5,000 MiB in a blob, which no caller here sends at once.
const maxHeld = 64 << 20

// hang holds requests up.
type hang struct {
	holds    func(*http.Request) bool
	released chan struct{}
	release  sync.Once
}

func (h *hang) end() { h.release.Do(func() { close(h.released) }) }

// Hang lets the requests that match (nil: all) hang from now on: they are accepted and get no
// answer until release is called. Then those whose callers still wait are passed on. A second
// Hang ends the first. match may be called concurrently.
func (p *Proxy) Hang(match func(*http.Request) bool) (release func()) {
	h := &hang{holds: match, released: make(chan struct{})}
	if match == nil {
		h.holds = func(*http.Request) bool { return true }
	}
	if before := p.hang.Swap(h); before != nil {
		before.end()
	}
	return func() {
		p.hang.CompareAndSwap(h, nil)
		h.end()
	}
}

// hold keeps a request that is to hang until it is released or its caller has left. The body
// is read first: the server notices that a caller leaves only when nothing of it is on the way.
func (p *Proxy) hold(req *http.Request) error {
	h := p.hang.Load()
	if h == nil || !h.holds(req) {
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

// Hanging returns how many requests hang at this moment.
func (p *Proxy) Hanging() int { return int(p.hanging.Load()) }
