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

// Folder assigns the files of a folder to an upstream. A file outside of all folders has no
// upstream and no limits.
type Folder struct {
	Path     string // without a slash at either end; no folder lies within another one
	Upstream string
}

// upstreamOf returns the upstream of a file. If no folder contains the file, the result is empty.
func (c *Collector) upstreamOf(f storage.File) string {
	for _, folder := range c.Folders {
		if strings.HasPrefix(f.Name, folder.Path+"/") {
			return folder.Upstream
		}
	}
	return ""
}

// minRest and maxRest are the shortest and the longest time for which an upstream rests; see the
// type rests. After minRest, a limit on the rate usually admits several more files. After a shorter
// rest, the limit could admit only one file, and a run would list the inbox again for each file. If
// a limit becomes larger during a rest, Weir notices the larger limit only after the rest. maxRest
// bounds this delay.
const minRest, maxRest = time.Second, 5 * time.Minute

// rests has the upstreams that have used up a limit. Such an upstream "rests": its files stay in
// the inbox for a time. The type is safe for concurrent use.
//
// Invariant: a rest ends only when the inbox is listed, even if its time is over earlier. Otherwise
// a run could leave a file in the inbox, and then take a later file of the same key.
type rests struct {
	mu    sync.Mutex
	until map[string]time.Time // when the rest of each upstream is over
	// keyOf of the files that were left in the inbox after the last listing
	left map[string]bool
}

// errResting is the error of a file that stays in the inbox because its upstream rests.
var errResting = errors.New("the upstream of the file has used up a limit")

// begin must be called before the inbox is listed. It ends the rests whose time is over, and clears
// "left".
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

func (r *rests) isResting(upstream string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, rests := r.until[upstream]
	return rests
}

// leaveFile records that a file stays in the inbox because its upstream rests.
func (r *rests) leaveFile(f storage.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left[keyOf(f)] = true
}

// wasLeft reports whether leaveFile has recorded the file after the last listing of the inbox.
func (r *rests) wasLeft(f storage.File) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left[keyOf(f)]
}

// beginRest makes an upstream rest after an error of kind Limited. It reports whether a new rest
// begins; an upstream that already rests only gets a new end.
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

// restUpstream makes an upstream rest after an error of kind Limited, and returns errResting.
func (c *Collector) restUpstream(upstream string, limited error) error {
	if c.rests.beginRest(upstream, limited, c.Now()) {
		c.Logger.Info("inbox: limit reached, files left in the inbox", "subject", upstream,
			"err", limited)
	}
	return errResting
}

// firstEnd returns the earliest time at which a rest is over; zero = no upstream rests.
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

// awaitRest waits until the first rest is over, and returns true. It returns false at once if no
// upstream rests, or if the deadline of ctx comes first. It also returns false if ctx ends during
// the wait.
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
