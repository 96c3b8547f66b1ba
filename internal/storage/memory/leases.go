package memory

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"weir/internal/storage"
)

// Leases are the leases of a container's blobs.
type Leases struct {
	now    func() time.Time
	mu     sync.Mutex
	leases map[string]*lease
}

type lease struct {
	id     string // of the last holder, also when expired; empty when released
	length time.Duration
	until  time.Time
}

var _ storage.Leases = (*Leases)(nil)

// Acquire implements storage.Leases.
func (l *Leases) Acquire(ctx context.Context, name, id string, length time.Duration) error {
	if err := ctx.Err(); err != nil {
		return fail("lease acquire", storage.Unavailable, err)
	}
	if err := checkLease(id, length); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.leases[name]
	if held != nil && held.id != "" && held.id != id && l.now().Before(held.until) {
		return fail("lease acquire", storage.Conflict, nil)
	}
	length = wholeSeconds(length)
	l.leases[name] = &lease{id: id, length: length, until: l.now().Add(length)}
	return nil
}

// Renew implements storage.Leases. As on Azure, a lease that ran out can be renewed by
// its last holder while nobody else has taken it.
func (l *Leases) Renew(ctx context.Context, name, id string) error {
	if err := ctx.Err(); err != nil {
		return fail("lease renew", storage.Unavailable, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.leases[name]
	if held == nil || held.id != id {
		return fail("lease renew", storage.Conflict, nil)
	}
	held.until = l.now().Add(held.length)
	return nil
}

// Release implements storage.Leases.
func (l *Leases) Release(ctx context.Context, name, id string) error {
	if err := ctx.Err(); err != nil {
		return fail("lease release", storage.Unavailable, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.leases[name]
	if held == nil || held.id != id {
		return fail("lease release", storage.Conflict, nil)
	}
	held.id = ""
	return nil
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// checkLease refuses what Azure refuses, whoever has the lease.
func checkLease(id string, length time.Duration) error {
	if !uuid.MatchString(id) {
		return fail("lease acquire", storage.Other, errors.New("the id is no UUID"))
	}
	if length < 15*time.Second || length > time.Minute {
		return fail("lease acquire", storage.Other, fmt.Errorf("length %s", length))
	}
	return nil
}
