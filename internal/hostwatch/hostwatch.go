package hostwatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"
)

// Event is what became of the host.
type Event string

// The events.
const (
	Stops Event = "stops" // it has closed its listening socket
	Gone  Event = "gone"  // it has ended
)

// Watch watches a host.
type Watch struct {
	Proc   fs.FS      // /proc
	Host   int        // the host's process id
	Parent func() int // the id of this process's parent now
	Ports  []string   // that the host may listen on, in digits; none = they are not known
	Found  func(int)  // is called when the watch goes by another number of sockets; nil = no matter
}

const (
	// lookEvery is the time between two looks whether the socket is still there. A host without an
	// invocation in flight kills its handler 0.3 s after it closed the socket.
	lookEvery = 50 * time.Millisecond
	// searchEvery is the time between two searches for sockets while the host starts, which takes
	// it startsWithin, and searchLater afterwards. The list of all connections may be long.
	searchEvery, searchLater = time.Second, 30 * time.Second
	startsWithin             = time.Minute
)

// ErrBlind means that the host's sockets cannot be read.
var ErrBlind = errors.New("the host's sockets cannot be read")

// Stop waits until the host stops or is gone. The error is ErrBlind, or ctx's.
func (w *Watch) Stop(ctx context.Context) (Event, error) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var front sockets // by which it goes; none = they are not found yet
	began := time.Now()
	known, searchAt := false, began
	for {
		isClosed := len(front) > 0 && !w.areOpen(front)
		if now := time.Now(); isClosed || !now.Before(searchAt) {
			found, err := w.find()
			switch {
			case w.Parent() != w.Host:
			case err != nil && !known:
				return "", fmt.Errorf("%w: %w", ErrBlind, err)
			case err == nil && isClosed && !overlap(front, found):
				return Stops, nil
			case err == nil:
				w.tellFound(len(front), len(found))
				front, known = found, known || len(found) > 0
			}
			if searchAt = now.Add(searchEvery); now.Sub(began) > startsWithin {
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

// End waits until the host is gone, or ctx ends.
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

// Check returns an error if the sockets of a process cannot be read here.
func Check(proc fs.FS, pid int) error {
	w := Watch{Proc: proc, Host: pid}
	if _, err := w.find(); err != nil {
		return fmt.Errorf("%w: %w", ErrBlind, err)
	}
	return nil
}

func (w *Watch) tellFound(before, now int) {
	if w.Found != nil && before != now {
		w.Found(now)
	}
}

// overlap reports whether a socket of the one is one of the other.
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
