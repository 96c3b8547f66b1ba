package inbox

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// Folder assigns the files of a folder to an upstream. Without a folder a file has no upstream, and no limits.
type Folder struct {
	Path     string // without a slash at either end; no folder lies within another
	Upstream string
}

// upstreamOf returns the upstream of a file; "" = none.
func (c *Collector) upstreamOf(f storage.File) string {
	for _, folder := range c.Folders {
		if strings.HasPrefix(f.Name, folder.Path+"/") {
			return folder.Upstream
		}
	}
	return ""
}

// minRest and maxRest limit the time for which the files of an upstream rest. Within a run, minRest lets a rate have
// tokens for several files before the inbox is listed again. maxRest lets a quota that an operator has raised, or that
// another instance has given back, take effect.
const minRest, maxRest = time.Second, 5 * time.Minute

// rests has the upstreams that have used up a limit. It is safe for concurrent use.
//
// Invariant: an upstream that rests keeps resting until the inbox is listed again, even if its time has come. Otherwise
// a file would be taken although an earlier one of its key was left.
type rests struct {
	mu    sync.Mutex
	until map[string]time.Time // by upstream
	left  map[string]bool      // files that were left since the inbox was listed, by keyOf
}

// errResting leaves a file in the inbox because its upstream rests.
var errResting = errors.New("the upstream of the file has used up a limit")

// begin is called when the inbox is listed. It forgets the rests that are over.
func (r *rests) begin(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = map[string]bool{}
	for name, until := range r.until {
		if !until.After(now) {
			delete(r.until, name)
		}
	}
}

// isResting reports whether the files of an upstream are left in the inbox.
func (r *rests) isResting(upstream string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, rests := r.until[upstream]
	return rests
}

// leaveFile records that a file was left.
func (r *rests) leaveFile(f storage.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left[keyOf(f)] = true
}

// wasLeft reports whether a file was left since the inbox was listed.
func (r *rests) wasLeft(f storage.File) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left[keyOf(f)]
}

// beginRest lets the files of an upstream rest after a Limited error, and reports whether they did not rest before.
func (r *rests) beginRest(upstream string, limited error, now time.Time) (isNew bool) {
	wait := minRest
	var e *weir.Error
	if errors.As(limited, &e) {
		wait = min(max(e.RetryAfter, minRest), maxRest)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, rested := r.until[upstream]
	r.until[upstream] = now.Add(wait)
	return !rested
}

// firstEnd returns when the first rest ends; zero = no upstream rests.
func (r *rests) firstEnd() (first time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, until := range r.until {
		if first.IsZero() || until.Before(first) {
			first = until
		}
	}
	return first
}

// awaitRest waits until an upstream may go on. It returns false if none rests, or none can go on before ctx ends.
func (c *Collector) awaitRest(ctx context.Context) bool {
	end := c.rests.firstEnd()
	if deadline, limited := ctx.Deadline(); end.IsZero() || limited && end.After(deadline) {
		return false
	}
	timer := time.NewTimer(end.Sub(c.Now()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
