package host

import (
	"context"
	"errors"
	"slices"
)

// DrainStatus is the answer to GET /admin/host/drain/status. It counts only invocations, not work
// that the handler does outside of invocations.
type DrainStatus struct {
	State                  string `json:"state"` // Disabled, InProgress, Completed
	OutstandingInvocations int    `json:"outstandingInvocations"`
	// always 0: retry policies are not supported here
	OutstandingRetries int `json:"outstandingRetries"`
}

// Drain stops the listeners of queues and timers, as the platform does before it removes an
// instance. Invocations in flight go on, and the host still serves HTTP. Restart starts the
// listeners again.
func (h *Host) Drain() {
	h.mu.Lock()
	h.isDraining = true
	h.mu.Unlock()
	h.stopTaking()
	for _, i := range h.allInstances() {
		i.polling.Wait()
	}
}

// DrainStatus returns the state of the drain.
func (h *Host) DrainStatus() DrainStatus {
	s := DrainStatus{State: "Disabled"}
	for _, i := range h.allInstances() {
		http, other, _ := i.inFlight.readCounts()
		s.OutstandingInvocations += http + other
	}

	h.mu.Lock()
	defer h.mu.Unlock()

	switch {
	case h.isDraining && s.OutstandingInvocations == 0:
		s.State = "Completed"
	case h.isDraining:
		s.State = "InProgress"
	}

	return s
}

// Restart restarts the script host, as the real host does after a change of a file or setting. For
// each handler, Restart starts a new handler on another port, which gets all new invocations. The
// old handler lives until its invocations have ended.
func (h *Host) Restart() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isStopping {
		return errStopping
	}

	h.console.logOwn("Restarting the script host.")
	h.stopListening()
	h.listening, h.stopListening = context.WithCancel(context.Background())
	h.isDraining = false
	for n, old := range h.instances {
		if !old.isAlive() || old.isRetiring.Load() {
			continue
		}

		successor, err := h.launchInstance(old.number, old.group)
		if err != nil {
			return err
		}

		h.instances[n] = successor
		h.replaced = append(h.replaced, old)
		old.isRetiring.Store(true)
		h.background.Go(func() { h.retireReplaced(old) })
	}

	h.startTimers()

	return startScaling(h)
}

var errStopping = errors.New("the host is stopping")

// retireReplaced ends an instance that was restarted or scaled in. It first waits, without a limit,
// until all invocations of the instance have ended.
func (h *Host) retireReplaced(old *instance) {
	old.endInOrder(noLimit, old.awaitHTTP)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replaced = slices.DeleteFunc(h.replaced, func(i *instance) bool { return i == old })
}

// stopTaking stops the listeners of queues and timers.
func (h *Host) stopTaking() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopListening()
}
