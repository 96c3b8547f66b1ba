// Package signin signs in to the CMS, and adds the credential to each request. The credential is a
// fixed header, a token that the package fetches or creates, or the result of a chain of requests.
//
// A process makes at most one sign-in at a time, however many lanes it holds. The first request
// after 75 % of a credential's lifetime starts a new sign-in. If the CMS answers 401 and the
// credential is not fixed, the package signs in again and repeats the request once.
//
// If no credential is valid and the sign-in fails, the request is not sent. The attempt then does
// not count towards the message's limit of attempts.
package signin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"weir/internal/clock"
	"weir/internal/conceal"
	"weir/internal/panics"
)

// Credential has the headers and the cookies that authenticate a request.
type Credential struct {
	Headers   http.Header
	Cookies   []*http.Cookie
	ExpiresAt time.Time // zero = unknown
	// why Weir does not believe the lifetime that the CMS named; empty = it does
	Doubt string
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
	// unknownLife is the assumed lifetime of a credential without an ExpiresAt. A 401 from the CMS
	// ends that lifetime.
	unknownLife = time.Hour
	// maxRemembered is the number of credentials that Keeper.Secrets knows. An attempt can wait for
	// its answer while the requests of other lanes let the process sign in anew, several times if
	// the CMS answers 401.
	maxRemembered = 16
	// retryPause is the pause between a failed sign-in and the next sign-in. Without the pause, the
	// sign-ins of many lanes could make the CMS lock the account.
	retryPause = time.Second
	// refusedPause is the least time between two sign-ins because of answers such as 403. Such an
	// answer can mean that the session has ended, but also that the user lacks a right; then a new
	// credential changes nothing.
	refusedPause = 5 * time.Minute
	// If endedAfter requests in a row get such an answer, although the CMS took a write with the
	// credential before, the session has ended rather than a right is missing. Then endedPause
	// takes the place of refusedPause. Otherwise a missing right would delay the sign-in that an
	// ended session needs.
	endedAfter = 5
	endedPause = 30 * time.Second
)

// Keeper has one credential for all requests of a process. It is safe for concurrent use.
type Keeper struct {
	source Source
	now    func() time.Time
	warn   func(doubt string) // is called with Credential.Doubt after a sign-in; nil = no call

	mu       sync.Mutex
	current  *kept     // nil = none
	recent   []*kept   // the last credentials, at most maxRemembered
	fetching *fetchRun // the sign-in in progress; nil = none
	failedAt time.Time // time of the last failure
	failure  error     // error of the last sign-in; nil = no failure
	// refusedAt is the time of the last sign-in because of an answer such as 403, and refusedRun is
	// that sign-in.
	refusedAt  time.Time
	refusedRun *fetchRun
	wasUsed    bool // the CMS has taken a write since refusedAt
	// answers such as 403 since the last write that the CMS took; counted if wasUsed
	refusals int
}

// kept is a credential with its times of renewal and expiry.
type kept struct {
	Credential
	renewAt   time.Time
	expiresAt time.Time
}

// fetchRun is a sign-in in progress.
type fetchRun struct {
	done chan struct{} // closed when got and err are set
	got  *kept
	err  error
}

// NewKeeper returns a Keeper for a source.
func NewKeeper(source Source, now func() time.Time) *Keeper {
	return &Keeper{source: source, now: now}
}

// WarnBy sets the function that gets the doubts about new credentials. It must be called before the
// first request.
func (k *Keeper) WarnBy(warn func(doubt string)) { k.warn = warn }

// Doubt returns why Weir does not believe the lifetime of the current credential; empty = it does.
func (k *Keeper) Doubt() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return ""
	}
	return k.current.Doubt
}

// getCredential returns the current credential, even while a renewal is in progress. If no
// credential is valid, getCredential waits for a sign-in. Within retryPause after a failed sign-in,
// getCredential returns the error of that sign-in instead.
func (k *Keeper) getCredential(ctx context.Context) (*kept, error) {
	k.mu.Lock()
	now := k.now()
	if k.current != nil && !now.Before(k.current.expiresAt) {
		k.current = nil
	}

	if c := k.current; c != nil {
		if !now.Before(c.renewAt) && !k.hasJustFailed(now) {
			k.startFetch()
		}
		k.mu.Unlock()
		return c, nil
	}

	if k.fetching == nil && k.hasJustFailed(now) {
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

// hasJustFailed reports whether the last sign-in failed less than retryPause ago.
func (k *Keeper) hasJustFailed(now time.Time) bool {
	return k.failure != nil && now.Before(k.failedAt.Add(retryPause))
}

// startFetch returns the sign-in in progress, or begins one. The sign-in does not depend on the
// context of a request: if the request that began the sign-in is cut off, other requests still get
// the credential. The caller holds mu.
func (k *Keeper) startFetch() *fetchRun {
	if k.fetching != nil {
		return k.fetching
	}

	f := &fetchRun{done: make(chan struct{})}
	k.fetching = f
	go func() {
		ctx, cancel := clock.WithTimeout(context.Background(), fetchTimeout)
		defer cancel()
		asked := k.now()
		var c Credential
		err := panics.Catch(func() (err error) {
			c, err = k.source.Fetch(ctx)
			return err
		})

		if c.Doubt != "" && k.warn != nil {
			k.warn(c.Doubt)
		}

		k.mu.Lock()
		defer k.mu.Unlock()
		k.fetching = nil
		if err != nil {
			f.err = &Error{err}
			k.failedAt, k.failure = k.now(), f.err
		} else {
			f.got = newKept(c, asked)
			k.current, k.failure = f.got, nil
			k.recent = append(k.recent[max(0, len(k.recent)+1-maxRemembered):], f.got)
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

// dropCredential removes the refused credential, except if a newer credential has replaced it
// already.
func (k *Keeper) dropCredential(refused *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == refused {
		k.current = nil
	}
}

// renewRefused returns another credential than the refused one, if there is one: the one that has
// replaced it, or the one of a new sign-in. It signs in once in refusedPause; requests that are
// refused meanwhile wait for that sign-in. The refused credential stays valid, because the refusal
// may have another cause, and the new sign-in may fail.
func (k *Keeper) renewRefused(ctx context.Context, refused *kept) (*kept, bool) {
	if c, ok := k.replacementOf(refused); ok {
		return c, true
	}

	run := k.fetchForRefused()
	if run == nil {
		return nil, false
	}

	select {
	case <-run.done:
		return k.replacementOf(refused)
	case <-ctx.Done():
		return nil, false
	}
}

// replacementOf returns the current credential, if it is valid and another one than the refused
// one.
func (k *Keeper) replacementOf(refused *kept) (*kept, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.current
	return c, c != nil && c != refused && k.now().Before(c.expiresAt)
}

// recordAnswer counts the answers such as 403 in a row. A read does not end the row, because many
// CMSs answer reads without a credential. Answers to earlier credentials do not count.
func (k *Keeper) recordAnswer(used *kept, method string, status int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	isRead := method == http.MethodGet || method == http.MethodHead
	switch {
	case used != k.current || status == http.StatusUnauthorized || status >= 500:
	case slices.Contains(forbidden, status):
		k.refusals++
	case !isRead:
		k.wasUsed, k.refusals = true, 0
	}
}

// fetchForRefused returns the sign-in for a refused credential: it begins one, or returns the last
// one, which can be in progress. Within refusedPause there is only one, except if the session seems
// to have ended (see endedAfter).
func (k *Keeper) fetchForRefused() *fetchRun {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, pause := k.now(), refusedPause
	if k.wasUsed && k.refusals >= endedAfter {
		pause = endedPause
	}

	if k.refusedRun == nil || !now.Before(k.refusedAt.Add(pause)) {
		k.refusedAt, k.refusedRun = now, k.startFetch()
		k.wasUsed, k.refusals = false, 0
	}

	return k.refusedRun
}

// isRenewable reports whether another sign-in can return a different credential.
func (k *Keeper) isRenewable() bool {
	_, isFixed := k.source.(Fixed)
	return !isFixed
}

// Check signs in if no credential is valid, and returns the error of the sign-in. So a caller can
// find wrong settings before the first message.
func (k *Keeper) Check(ctx context.Context) error {
	_, err := k.getCredential(ctx)
	return err
}

// Secrets returns the secrets of the last credentials, so that a caller can hide them in texts. An
// answer can repeat a credential that was replaced while the CMS worked on the request. A value can
// be empty.
func (k *Keeper) Secrets() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var secrets []string
	for _, c := range k.recent {
		for name, values := range c.Headers {
			for _, value := range values {
				secrets = append(secrets, conceal.HeaderSecrets(name, value)...)
			}
		}

		for _, cookie := range c.Cookies {
			secrets = append(secrets, cookie.Value)
		}
	}

	return secrets
}

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
