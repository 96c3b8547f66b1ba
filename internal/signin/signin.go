// Package signin signs requests to the CMS in. The credential is a fixed header, a token that the package
// fetches and renews, or the result of a chain of requests.
//
// A process has one sign-in in flight, whatever the number of lanes is. It renews a token at 75 % of its
// lifetime. If the CMS answers 401, it drops the token and repeats the request once. If a sign-in fails, the
// request is not sent, so the attempt is not one of the message's limited attempts.
package signin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Credential has the headers and cookies that sign requests in.
type Credential struct {
	Headers   http.Header
	Cookies   []*http.Cookie
	ExpiresAt time.Time // zero = unknown
}

// Source fetches credentials.
type Source interface {
	Fetch(ctx context.Context) (Credential, error)
}

// Fixed is a Source of a credential that does not change.
type Fixed Credential

// Fetch implements Source.
func (f Fixed) Fetch(context.Context) (Credential, error) { return Credential(f), nil }

// Error is the error of a failed sign-in.
type Error struct{ Err error }

func (e *Error) Error() string { return "sign-in: " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

const (
	// fetchTimeout limits the time of a sign-in.
	fetchTimeout = 20 * time.Second
	// unknownLife is the lifetime of a credential whose source does not report one. A 401 ends it earlier.
	unknownLife = time.Hour
	// retryPause is the pause after a failed sign-in. During the pause, requests fail at once. Otherwise many
	// lanes could lock the account by their tries.
	retryPause = time.Second
)

// Keeper has one credential for all requests of a process.
type Keeper struct {
	source Source
	now    func() time.Time

	mu       sync.Mutex
	current  *kept
	fetching *fetchCredential
	failedAt time.Time
	failure  error
}

// kept is a credential with the times of its renewal and its end.
type kept struct {
	Credential
	renewAt   time.Time
	expiresAt time.Time
}

// fetchCredential is a sign-in in progress.
type fetchCredential struct {
	done chan struct{}
	got  *kept
	err  error
}

// NewKeeper returns a Keeper for a source.
func NewKeeper(source Source, now func() time.Time) *Keeper { return &Keeper{source: source, now: now} }

// getCredential returns the credential. If there is none, it fetches one. During a renewal it returns the old
// credential, which is still valid then.
func (k *Keeper) getCredential(ctx context.Context) (*kept, error) {
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

// hasFailedNow reports whether the last sign-in failed within retryPause.
func (k *Keeper) hasFailedNow(now time.Time) bool {
	return k.failure != nil && now.Before(k.failedAt.Add(retryPause))
}

// startFetch begins a sign-in, except if one is in progress. The sign-in does not depend on the request that
// caused it: if that request is cut off, the other requests still get the credential. The caller holds the
// lock.
func (k *Keeper) startFetch() *fetchCredential {
	if k.fetching != nil {
		return k.fetching
	}
	f := &fetchCredential{done: make(chan struct{})}
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

// dropCredential removes a refused credential, except if another one has replaced it.
func (k *Keeper) dropCredential(refused *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == refused {
		k.current = nil
	}
}

// Check signs in, to find mistakes in the settings.
func (k *Keeper) Check(ctx context.Context) error {
	_, err := k.getCredential(ctx)
	return err
}

// Secrets returns the values of the current credential, for masks.
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

// errUnsigned is the error of a credential that cannot be added to a request.
var errUnsigned = errors.New("the credential cannot be sent in a header")

func (c *kept) signRequest(req *http.Request) error {
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
