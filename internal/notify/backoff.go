package notify

import (
	"sync"
	"time"
)

const (
	// A host that does not answer is tried again after minBackoff, then after twice as long each
	// time, up to maxBackoff.
	minBackoff = 5 * time.Second
	maxBackoff = time.Minute
	// maxHosts bounds the memory of backoffs.
	maxHosts = 1000
)

// hostBackoffs remembers the hosts that did not answer, and the addresses that answered 429 or 503:
// other addresses of such a host may work. Safe for concurrent use.
type hostBackoffs struct {
	mu     sync.Mutex
	byName map[string]*hostBackoff
}

type hostBackoff struct {
	failures int
	retryAt  time.Time
}

// allowedAtOnce returns the number of requests that a host, or an address, may get at a time now; 0
// while it is backed off, 1 for its next try.
func (h *hostBackoffs) allowedAtOnce(name string, now time.Time) (atOnce int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch a := h.byName[name]; {
	case a == nil:
		return maxPerHost
	case a.retryAt.After(now):
		return 0
	}
	return 1
}

// recordResponse updates the backoff of the endpoint's host if there was no answer. If there was one, it ends the
// host's backoff, and updates the backoff of the endpoint's address.
func (h *hostBackoffs) recordResponse(to endpoint, v response, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := to.host
	if v.status != 0 {
		delete(h.byName, to.host)
		name = to.url
	}
	if !v.isAway {
		delete(h.byName, name)
		return
	}
	if h.byName == nil || len(h.byName) >= maxHosts {
		h.byName = map[string]*hostBackoff{}
	}
	a := h.byName[name]
	if a == nil {
		a = &hostBackoff{}
		h.byName[name] = a
	}
	pause := min(minBackoff<<min(a.failures, 10), maxBackoff)
	a.failures++
	a.retryAt = now.Add(max(pause, min(v.retryAfter, maxBackoff)))
}
