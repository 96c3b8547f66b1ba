package memory

import (
	"context"
	"sync"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/limits"
)

// Leases implements storage.Leases.
type Leases struct {
	now    func() time.Time
	mu     sync.Mutex
	leases map[string]*lease
}

type lease struct {
	// id of the last successful Acquire; an expired lease keeps its id; empty = released
	id        string
	length    time.Duration
	expiresAt time.Time
	createdAt time.Time
}

var _ storage.Leases = (*Leases)(nil)

// Acquire implements storage.Leases.
func (l *Leases) Acquire(ctx context.Context, name, id string, length time.Duration) error {
	if err := ctx.Err(); err != nil {
		return newError("lease acquire", storage.Unavailable, err)
	}

	if err := limits.CheckLease("lease acquire", id, length); err != nil {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.leases[name]
	if held != nil && held.id != "" && held.id != id && l.now().Before(held.expiresAt) {
		return newError("lease acquire", storage.Conflict, nil)
	}

	length = limits.WholeSeconds(length)
	created := l.now()
	if held != nil {
		created = held.createdAt
	}

	l.leases[name] = &lease{id: id, length: length, expiresAt: l.now().Add(length),
		createdAt: created}

	return nil
}

// List returns one page of the leases' blobs.
func (l *Leases) List(ctx context.Context, prefix, marker string) (storage.BlobPage, error) {
	if err := ctx.Err(); err != nil {
		return storage.BlobPage{}, newError("blob list", storage.Unavailable, err)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	names, next := listNames(l.leases, prefix, marker)
	page := storage.BlobPage{Next: next}
	for _, name := range names {
		page.Infos = append(page.Infos,
			storage.BlobInfo{Name: name, ModifiedAt: l.leases[name].createdAt})
	}

	return page, nil
}

// Delete removes the blob of a lease. It returns Conflict if a holder has the lease.
func (l *Leases) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return newError("blob delete", storage.Unavailable, err)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.leases[name]
	switch {
	case held == nil:
		return newError("blob delete", storage.NotFound, nil)
	case held.id != "" && l.now().Before(held.expiresAt):
		return newError("blob delete", storage.Conflict, nil)
	}

	delete(l.leases, name)

	return nil
}

// Renew implements storage.Leases.
func (l *Leases) Renew(ctx context.Context, name, id string) error {
	if err := ctx.Err(); err != nil {
		return newError("lease renew", storage.Unavailable, err)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.leases[name]
	if held == nil || held.id != id {
		return newError("lease renew", storage.Conflict, nil)
	}

	held.expiresAt = l.now().Add(held.length)

	return nil
}

// Release implements storage.Leases.
func (l *Leases) Release(ctx context.Context, name, id string) error {
	if err := ctx.Err(); err != nil {
		return newError("lease release", storage.Unavailable, err)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.leases[name]
	if held == nil || held.id != id {
		return newError("lease release", storage.Conflict, nil)
	}

	held.id = ""

	return nil
}
