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

// Folder assigns the files of a folder to an upstream. A file outside of all folders has no upstream, and no
// limits.
type Folder struct {
	Path     string // without a slash at either end; no folder lies within another one
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

// minRest and maxRest limit the time for which an upstream rests (see rests). After minRest, a rate admits several
// files as a rule; with a shorter rest, a run would list the inbox again for each file. maxRest bounds the delay until
// Weir notices that an operator has raised a quota, or that another instance has returned a part of it.
const minRest, maxRest = time.Second, 5 * time.Minute

// rests has the upstreams that rest: they have used up a limit, so their files stay in the inbox for a time. It
// is safe for concurrent use.
//
// Invariant: an upstream that rests goes on to rest until the inbox is listed again, even if its time is over.
// Otherwise a run would take a file although it has left an earlier file of the key in the inbox.
type rests struct {
	mu    sync.Mutex
	until map[string]time.Time // end of the rest of each upstream
	left  map[string]bool      // files, by keyOf, that were left in the inbox since the inbox was listed last
}

// errResting is the error of a file that stays in the inbox because its upstream rests.
var errResting = errors.New("the upstream of the file has used up a limit")

// begin is called when the inbox is listed. It deletes the rests that are over.
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

// isResting reports whether an upstream rests.
func (r *rests) isResting(upstream string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, rests := r.until[upstream]
	return rests
}

// leaveFile records that a file was left in the inbox.
func (r *rests) leaveFile(f storage.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left[keyOf(f)] = true
}

// wasLeft reports whether leaveFile has recorded a file since the inbox was listed last.
func (r *rests) wasLeft(f storage.File) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left[keyOf(f)]
}

// beginRest makes an upstream rest after a Limited error. It reports whether the upstream did not rest before.
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

// firstEnd returns the time at which the first rest ends; zero = no upstream rests.
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

// awaitRest waits for the end of the first rest, and returns true. It returns false if no upstream rests, or if ctx
// ends before the first rest does.
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
