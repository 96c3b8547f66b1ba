package notify

import (
	"sync"
	"time"
)

const (
	// A host that is away is tried again after awayMin, then after twice as long each time,
	// up to awayMax.
	awayMin = 5 * time.Second
	awayMax = time.Minute
	// maxHosts bounds what is remembered.
	maxHosts = 1000
)

// hosts are those that did not answer lately; and addresses, where the host answered that it
// cannot take it now: others there may well be taken. Safe for concurrent use.
type hosts struct {
	mu   sync.Mutex
	away map[string]*absence
}

type absence struct {
	failures int
	until    time.Time
}

// open says whether a host, or an address, may be sent something now, and how much at a time.
func (h *hosts) open(name string, now time.Time) (atOnce int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch a := h.away[name]; {
	case a == nil:
		return perHost
	case a.until.After(now):
		return 0
	}
	return 1
}

// learn takes in how a request went.
func (h *hosts) learn(to target, v verdict, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := to.host
	if v.status != 0 {
		delete(h.away, to.host)
		name = to.url
	}
	if !v.away {
		delete(h.away, name)
		return
	}
	if h.away == nil || len(h.away) >= maxHosts {
		h.away = map[string]*absence{}
	}
	a := h.away[name]
	if a == nil {
		a = &absence{}
		h.away[name] = a
	}
	pause := min(awayMin<<min(a.failures, 10), awayMax)
	a.failures++
	a.until = now.Add(max(pause, min(v.retryAfter, awayMax)))
}
