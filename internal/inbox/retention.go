package inbox

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/panics"
	"weir/internal/storage"
	"weir/internal/storage/listing"
)

// removedAtOnce is the number of files that are removed at the same time.
const removedAtOnce = 16

// archivePrefixes are the listings of an archive. The first one has all names in their order, but
// its walk ends at the first young file. The other one has the markers of left files.
var archivePrefixes = []string{"", leftPrefix}

// RemoveAccepted removes the accepted files past their retention, from a marker on; "" = from the
// beginning. It returns the marker to continue from, and reports whether the walk has ended. If
// storage refuses to remove a file, for example because of a legal hold, RemoveAccepted removes the
// others, and returns the first such error.
func (c *Collector) RemoveAccepted(ctx context.Context, marker string) (next string, isDone bool,
	err error) {
	return c.removeExpired(ctx, c.Accepted, marker)
}

// RemoveRejected is RemoveAccepted for the rejected files.
func (c *Collector) RemoveRejected(ctx context.Context, marker string) (next string, isDone bool,
	err error) {
	return c.removeExpired(ctx, c.Rejected, marker)
}

func (c *Collector) removeExpired(ctx context.Context, from storage.Files,
	marker string) (string, bool, error) {
	before := c.Now().Add(-c.Retention)
	var refused error
	next, isDone, err := listing.Walk(archivePrefixes, marker,
		func(prefix, at string) (string, error) {
			page, err := from.List(ctx, prefix, at)
			if errors.Is(err, storage.ErrGone) {
				return "", nil
			}
			if err != nil {
				return "", err
			}

			failed, err := c.removeFiles(ctx, from, page.Files, func(f storage.File) (bool, error) {
				return c.isExpired(ctx, f, before)
			})
			if refused == nil {
				refused = failed
			}

			if n := len(page.Files); prefix == "" && n > 0 &&
				isPastExpired(page.Files[n-1].Name, before) {
				return "", err
			}

			return page.Next, err
		})

	return next, isDone, errors.Join(err, refused)
}

// isPastExpired reports whether a walk can end at a name: in the order of names, each further file
// is too young to be removed, or belongs to another listing.
func isPastExpired(name string, before time.Time) bool {
	if name[0] >= 'A' {
		return true
	}
	date := name[:min(len(dayFormat), len(name))]
	_, err := time.Parse(dayFormat, date)
	return err == nil && date > before.UTC().Format(dayFormat)
}

// isExpired reports whether a file of an archive can be removed. The marker of a left file stays
// while the inbox has its version.
func (c *Collector) isExpired(ctx context.Context, f storage.File, before time.Time) (bool, error) {
	if !f.ModifiedAt.Before(before) {
		return false, nil
	}
	if !strings.HasPrefix(f.Name, leftPrefix) {
		return true, nil
	}

	isThere, err := c.hasMarked(ctx, f)
	return !isThere, err
}

// EraseMessage removes the accepted file of a message, if there is one.
func (c *Collector) EraseMessage(ctx context.Context, id string, acceptedAt time.Time) error {
	folder := messageFolder(id, acceptedAt)
	all := func(storage.File) (bool, error) { return true, nil }
	var refused error
	for marker := ""; ; {
		page, err := c.Accepted.List(ctx, folder, marker)
		if errors.Is(err, storage.ErrGone) {
			return refused
		}
		if err != nil {
			return errors.Join(err, refused)
		}

		failed, err := c.removeFiles(ctx, c.Accepted, page.Files, all)
		if refused == nil {
			refused = failed
		}

		if err != nil || page.Next == "" {
			return errors.Join(err, refused)
		}

		marker = page.Next
	}
}

// removeFiles removes the files for which the function matches returns true. If storage refuses to
// delete a file, removeFiles removes the others, and returns the first refusal as refused. Any
// other error means that storage cannot be reached.
func (c *Collector) removeFiles(ctx context.Context, from storage.Files, files []storage.File,
	matches func(storage.File) (bool, error)) (refused, err error) {
	var mu sync.Mutex
	var work errgroup.Group
	work.SetLimit(removedAtOnce)

	for _, f := range files {
		work.Go(panics.Guard(func() error {
			isMatch, err := matches(f)
			if isMatch {
				err = from.Delete(ctx, f.Name, f.ETag)
			}

			if err == nil || isChanged(err) {
				return nil
			}
			if endsRun(ctx, err) {
				return err
			}

			mu.Lock()
			defer mu.Unlock()
			if refused == nil {
				refused = err
			}

			return nil
		}))
	}

	err = work.Wait()

	return refused, err
}
