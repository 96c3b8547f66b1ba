package notify

import (
	"sync"
	"time"
)

const (
	// If a host does not answer, the next request to it is sent after minBackoff. After each further failure
	// the wait doubles, up to maxBackoff.
	minBackoff = 5 * time.Second
	maxBackoff = time.Minute
	// maxHosts bounds the memory of backoffs: at this number, all backoffs are deleted.
	maxHosts = 1000
)

// hostBackoffs has a backoff for each host that did not answer, and for each address that answered 429 or 503. If a
// host answered 429 or 503 at one address, its other addresses may work. It is safe for concurrent use.
type hostBackoffs struct {
	mu     sync.Mutex
	byName map[string]*hostBackoff
}

type hostBackoff struct {
	failures int       // number of consecutive failures
	retryAt  time.Time // end of the backoff
}

// allowedAtOnce returns the number of requests of a lane that may be in flight to a host, or to an address. The
// number is 0 during the backoff, and then 1 until a response ends the backoff.
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

// recordResponse begins or prolongs the backoff of the endpoint's host if the host did not answer. If the host
// answered, recordResponse ends the host's backoff, and begins, prolongs or ends that of the endpoint's address.
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
