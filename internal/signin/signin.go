// Package signin signs requests to the CMS in: by a fixed header, by a token that it fetches and renews,
// or by a chain of requests of its own.
//
// A process fetches one token at a time, whatever the number of lanes. It renews a token at 75 % of its
// life, and drops one that the CMS answers 401 to; then it repeats the request once. A failed sign-in
// is never the message's failure: the request is not sent.
package signin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Credential is what a signed request carries.
type Credential struct {
	Headers   http.Header
	Cookies   []*http.Cookie
	ExpiresAt time.Time // zero = unknown
}

// Source fetches credentials.
type Source interface {
	Fetch(ctx context.Context) (Credential, error)
}

// Fixed is a credential that does not change.
type Fixed Credential

// Fetch implements Source.
func (f Fixed) Fetch(context.Context) (Credential, error) { return Credential(f), nil }

// Error is a failed sign-in.
type Error struct{ Err error }

func (e *Error) Error() string { return "sign-in: " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

const (
	// fetchTimeout limits a sign-in.
	fetchTimeout = 20 * time.Second
	// unknownLife is the life of a credential whose source names none. A 401 ends it earlier.
	unknownLife = time.Hour
	// retryPause is the time between two sign-ins of which the first failed. Meanwhile requests fail at
	// once, so that all lanes together do not lock the account.
	retryPause = time.Second
)

// Keeper keeps a credential for all requests of a process.
type Keeper struct {
	source Source
	now    func() time.Time

	mu       sync.Mutex
	current  *kept
	fetching *fetch
	failedAt time.Time
	failure  error
}

// kept is a credential with the times that it is used and renewed at.
type kept struct {
	Credential
	renewAt   time.Time
	expiresAt time.Time
}

// fetch is a sign-in under way.
type fetch struct {
	done chan struct{}
	got  *kept
	err  error
}

// NewKeeper returns a Keeper of a source.
func NewKeeper(source Source, now func() time.Time) *Keeper { return &Keeper{source: source, now: now} }

// get returns the credential, and fetches one if there is none. While a credential that still holds is
// renewed, it is used.
func (k *Keeper) get(ctx context.Context) (*kept, error) {
	k.mu.Lock()
	now := k.now()
	if k.current != nil && !now.Before(k.current.expiresAt) {
		k.current = nil
	}
	if c := k.current; c != nil {
		if !now.Before(c.renewAt) && !k.hasFailedNow(now) {
			k.startFetch()
		}
		k.mu.Unlock()
		return c, nil
	}
	if k.fetching == nil && k.hasFailedNow(now) {
		defer k.mu.Unlock()
		return nil, k.failure
	}
	f := k.startFetch()
	k.mu.Unlock()
	select {
	case <-f.done:
		return f.got, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hasFailedNow reports whether the last sign-in failed just now.
func (k *Keeper) hasFailedNow(now time.Time) bool {
	return k.failure != nil && now.Before(k.failedAt.Add(retryPause))
}

// startFetch begins a sign-in, unless one is under way. It is nobody's own: a request that is cut off
// leaves it to the others. The caller holds the lock.
func (k *Keeper) startFetch() *fetch {
	if k.fetching != nil {
		return k.fetching
	}
	f := &fetch{done: make(chan struct{})}
	k.fetching = f
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
		defer cancel()
		asked := k.now()
		c, err := k.source.Fetch(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.fetching = nil
		if err != nil {
			f.err = &Error{err}
			k.failedAt, k.failure = k.now(), f.err
		} else {
			f.got = newKept(c, asked)
			k.current, k.failure = f.got, nil
		}
		close(f.done)
	}()
	return f
}

func newKept(c Credential, now time.Time) *kept {
	if c.ExpiresAt.IsZero() {
		c.ExpiresAt = now.Add(unknownLife)
	}
	life := c.ExpiresAt.Sub(now)
	return &kept{Credential: c, renewAt: now.Add(life * 3 / 4), expiresAt: c.ExpiresAt}
}

// drop forgets a credential that was refused, unless another one has taken its place.
func (k *Keeper) drop(refused *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == refused {
		k.current = nil
	}
}

// Check signs in, for a look at the settings.
func (k *Keeper) Check(ctx context.Context) error {
	_, err := k.get(ctx)
	return err
}

// Secrets returns the values of the present credential, for masks.
func (k *Keeper) Secrets() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return nil
	}
	var secrets []string
	for _, values := range k.current.Headers {
		for _, value := range values {
			secrets = append(secrets, value, afterScheme(value))
		}
	}
	for _, cookie := range k.current.Cookies {
		secrets = append(secrets, cookie.Value)
	}
	return secrets
}

// errUnsigned is wrapped if the credential cannot be put into a request.
var errUnsigned = errors.New("the credential cannot be sent in a header")

func (c *kept) sign(req *http.Request) error {
	for name, values := range c.Headers {
		for _, value := range values {
			if !isHeaderValue(value) {
				return &Error{fmt.Errorf("%w: %s", errUnsigned, name)}
			}
		}
		req.Header[name] = values
	}
	for _, cookie := range c.Cookies {
		req.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value, Quoted: cookie.Quoted})
	}
	return nil
}
