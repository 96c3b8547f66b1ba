package embedded

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"weir/internal/clock"
)

// bbolt writes a changed page to another place, and the bytes of the old page stay in the file
// until the place is used again. So a scrub overwrites the pages that the present state does not
// refer to.
const (
	// scrubStep is the number of pages that one step looks at while no commit runs.
	scrubStep = 1024
	// maxScrubSteps bounds a scrub by time: the next one goes on where it ended.
	maxScrubSteps = 64
)

// scrubber overwrites the free pages of a store.
type scrubber struct {
	store *Store
	file  *os.File
	next  int // page at which the next scrub begins
	seen  int // id of the transaction of the last scrub
}

// Scrub overwrites the bytes of all rows, blobs and messages that were replaced or removed before
// the call. The store does the same each minute, in parts if the file is large.
func (s *Store) Scrub(ctx context.Context) error {
	f, err := os.OpenFile(filepath.Join(s.dir, dataName), os.O_RDWR, 0)
	if err != nil {
		return notDone("scrub", err)
	}

	one := &scrubber{store: s, file: f}
	err = one.scrubAll(ctx)

	return errors.Join(err, f.Close())
}

func (c *scrubber) scrubAll(ctx context.Context) error {
	for isDone := false; !isDone; {
		var err error
		if isDone, err = c.scrubPart(ctx); ctx.Err() != nil {
			return endedError(ctx, "scrub")
		} else if err != nil {
			return notDone("scrub", err)
		}
	}

	return nil
}

// scrubPart does a number of steps, and reports whether it has come to the end of the file.
func (c *scrubber) scrubPart(ctx context.Context) (isDone bool, err error) {
	changed := false
	for n := 0; n < maxScrubSteps && !isDone; n++ {
		if ctx.Err() != nil {
			return false, endedError(ctx, "scrub")
		}

		var wrote bool
		wrote, isDone, err = c.step()
		if err != nil {
			return false, err
		}

		changed = changed || wrote
	}

	if isDone {
		c.next = 0
	}

	if changed && !c.store.noSync {
		return isDone, c.file.Sync()
	}

	return isDone, nil
}

// step overwrites the free ones of the next pages. No reader has an older state meanwhile, and no
// commit takes a free page. The state on disk is valid without the free pages, so a power cut does
// no harm at any moment.
func (c *scrubber) step() (wrote, isDone bool, err error) {
	c.store.longReads.Lock()
	defer c.store.longReads.Unlock()
	c.store.reading.Lock()
	defer c.store.reading.Unlock()

	err = guardFaults(func() (err error) {
		tx, err := c.store.db.Begin(true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, tx.Rollback()) }()

		info, err := c.file.Stat()
		if err != nil {
			return err
		}

		pages := int(info.Size() / pageSize)
		end := min(c.next+scrubStep, pages)
		wrote, err = c.zeroFree(tx, c.next, end)
		c.next, isDone = end, end == pages

		return err
	})

	return wrote, isDone, err
}

// zeroFree overwrites the free pages from begin on before end. The pages 0 and 1 are those that
// make a state valid.
func (c *scrubber) zeroFree(tx *bolt.Tx, begin, end int) (wrote bool, err error) {
	for first := max(begin, 2); first < end; {
		last := first
		for last < end && isFree(tx, last) {
			last++
		}

		if last > first {
			one, err := c.zeroPages(first, last)
			if err != nil {
				return wrote, err
			}
			wrote = wrote || one
		}

		first = last + 1
	}

	return wrote, nil
}

// isFree reports whether the present state does not refer to a page. Beyond the last page of the
// state there can be pages of a commit that failed.
func isFree(tx *bolt.Tx, id int) bool {
	info, err := tx.Page(id)

	return err == nil && (info == nil || info.Type == "free")
}

// zeroPages overwrites the pages that have other bytes than zeros.
func (c *scrubber) zeroPages(first, end int) (wrote bool, err error) {
	data := make([]byte, (end-first)*pageSize)
	if _, err := c.file.ReadAt(data, int64(first)*pageSize); err != nil {
		return false, err
	}

	for n := range end - first {
		if bytes.Equal(data[n*pageSize:(n+1)*pageSize], zeroPage[:]) {
			continue
		}

		if _, err := c.file.WriteAt(zeroPage[:], int64(first+n)*pageSize); err != nil {
			return wrote, err
		}

		wrote = true
	}

	return wrote, nil
}

var zeroPage [pageSize]byte

// repeat scrubs after each interval in which something was written, until ctx ends. An error, such
// as a full disk, is no reason to stop.
func (c *scrubber) repeat(ctx context.Context) {
	for clock.Sleep(ctx, scrubInterval) {
		if !c.store.longReads.TryLock() {
			continue // a back-up must not hold up a process that ends
		}

		c.store.longReads.Unlock()
		id, isKnown := c.store.committer.stateID()
		if !isKnown || (id == c.seen && c.next == 0) {
			continue
		}

		if _, err := c.scrubPart(ctx); err == nil {
			c.seen = id
		}
	}
}
