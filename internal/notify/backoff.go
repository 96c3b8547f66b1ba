package notify

import (
	"sync"
	"time"
)

const (
	// After a failed request, the next request to the same host or address waits for minBackoff, or
	// longer if the answer asks for that. The wait doubles with each further failure, up to
	// maxBackoff.
	minBackoff = 5 * time.Second
	maxBackoff = time.Minute
	// maxHosts bounds the memory. If there are so many backoffs, the next failed request first
	// deletes all of them.
	maxHosts = 1000
)

// hostBackoffs has a backoff for each host that did not answer. If an address answered 429 or 503,
// only the address has a backoff, because other addresses of the same host may work. hostBackoffs
// is safe for concurrent use.
type hostBackoffs struct {
	mu     sync.Mutex
	byName map[string]*hostBackoff
}

type hostBackoff struct {
	failures int       // number of consecutive failures
	retryAt  time.Time // end of the backoff
}

// allowedAtOnce returns how many requests of a lane may be in flight to name, which is a host or an
// address. If name has a backoff, the result is 0 until the time retryAt, and 1 after this time
// until a response deletes the backoff.
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

// retryAt returns the end of the backoff of name, and reports whether name has a backoff. A backoff
// that is over stays until a response deletes it.
func (h *hostBackoffs) retryAt(name string) (end time.Time, has bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.byName[name]
	if a == nil {
		return time.Time{}, false
	}
	return a.retryAt, true
}

// recordResponse updates the backoffs after a request:
//
//   - If the host did not answer, the host's backoff begins or grows.
//   - If Weir sent nothing because the host's IP address is not public, the host's backoff is
//     deleted.
//   - If the host answered, its backoff is deleted. An answer of 429 or 503 begins or prolongs the
//     address's backoff. Any other answer deletes the address's backoff.
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
