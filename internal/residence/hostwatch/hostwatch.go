package hostwatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"
)

// Event is the reason why Watch.Stop returned.
type Event string

// The events.
const (
	Stops Event = "stops" // the host has closed the last watched socket
	Gone  Event = "gone"  // the host has ended
)

// Watch watches the Functions host of this process.
type Watch struct {
	Proc   fs.FS      // /proc
	Host   int        // the host's process id
	Parent func() int // returns the present id of this process's parent
	Ports  []string   // ports that the host may listen on, as decimal numbers; empty = not known
	// called with the number of watched sockets when a search changes this number; can be nil
	Found func(int)
}

const (
	// lookEvery is the time between two checks that the watched sockets are open. It is short: a
	// host without an invocation in flight kills its handler 0.3 s after the socket is closed.
	lookEvery = 50 * time.Millisecond
	// searchEvery is the time between two searches for sockets while the host starts. After
	// startsWithin, or as soon as the host listens on every named port, the time is searchLater. A
	// search reads the list of all connections: with thousands of connections, a search each second
	// took a quarter of the handler's CPU time. The method End also uses searchEvery, as the time
	// between two checks that the host still exists.
	searchEvery, searchLater = time.Second, 30 * time.Second
	startsWithin             = time.Minute
	// blindAfter is the number of failed searches in a row after which Stop returns ErrBlind. After
	// a search has found a socket, Stop no longer returns ErrBlind. A single search can fail
	// because the process has no free descriptor.
	blindAfter = 3
)

// ErrBlind means that the host's sockets cannot be read.
var ErrBlind = errors.New("the host's sockets cannot be read")

// Stop waits until the host stops or is gone. The error wraps ErrBlind, or is the error of ctx.
func (w *Watch) Stop(ctx context.Context) (Event, error) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var watched sockets // empty = no socket is found yet
	began := time.Now()
	wasFound, searchAt, failures := false, began, 0
	for {
		isClosed := len(watched) > 0 && !w.areOpen(watched)
		if now := time.Now(); isClosed || !now.Before(searchAt) {
			found, isComplete, err := w.findSockets()
			if failures++; err == nil {
				failures = 0
			}

			switch {
			case w.Parent() != w.Host:
			case failures >= blindAfter && !wasFound:
				return "", fmt.Errorf("%w: %w", ErrBlind, err)
			case err == nil && isClosed && !overlap(watched, found):
				return Stops, nil
			case err == nil:
				w.tellFound(len(watched), len(found))
				watched, wasFound = found, wasFound || len(found) > 0
			}

			if searchAt = now.Add(searchEvery); isComplete || now.Sub(began) > startsWithin {
				searchAt = now.Add(searchLater)
			}
		}

		if w.Parent() != w.Host {
			return Gone, nil
		}

		select {
		case <-ticker.C:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// End waits until the host is gone. If ctx ends first, End returns the error of ctx.
func (w *Watch) End(ctx context.Context) error {
	ticker := time.NewTicker(searchEvery)
	defer ticker.Stop()

	for w.Parent() == w.Host {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	return nil
}

// Check returns an error that wraps ErrBlind if this process cannot read the sockets of the process
// pid.
func Check(proc fs.FS, pid int) error {
	w := Watch{Proc: proc, Host: pid}
	if _, _, err := w.findSockets(); err != nil {
		return fmt.Errorf("%w: %w", ErrBlind, err)
	}
	return nil
}

func (w *Watch) tellFound(before, now int) {
	if w.Found != nil && before != now {
		w.Found(now)
	}
}

// overlap reports whether a and b have a socket in common, even if the socket's descriptors differ.
func overlap(a, b sockets) bool {
	inodes := map[string]bool{}
	for inode := range maps.Values(a) {
		inodes[inode] = true
	}

	for inode := range maps.Values(b) {
		if inodes[inode] {
			return true
		}
	}

	return false
}
